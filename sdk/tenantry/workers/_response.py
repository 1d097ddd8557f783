"""HTTP responses: what an entrypoint returns, and what `fetch` returns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol, Self, overload

from ._body import Body, HasBody, make_body, received_body
from ._headers import Headers, HeadersInit
from ._host import HostResponse

NULL_BODY = frozenset({204, 205, 304})
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class MakeJson(Protocol):
    """`Response.json(data)`, which `Response.from_json` is too."""

    def __call__(
        self,
        data: Any,
        status: HTTPStatus | int = 200,
        status_text: str = "",
        headers: HeadersInit | None = None,
    ) -> Response:
        """Make a response of what `json.dumps` knows."""
        ...


class _Json:
    """`Response.json(data)` makes a response, and `response.json()` reads one."""

    @overload
    def __get__(self, instance: None, owner: type[Response]) -> MakeJson: ...
    @overload
    def __get__(
        self, instance: Response, owner: type[Response]
    ) -> Callable[..., Awaitable[Any]]: ...
    def __get__(self, instance: Response | None, owner: type[Response]) -> Any:
        return owner.from_json if instance is None else instance.read_json


class Response(HasBody):
    """A response: a body, a status and headers.

    A body is text, bytes, a `Blob`, a form, a stream, or anything that is iterated for its pieces,
    such as an async generator. What else JSON has is `Response.json(...)`.
    """

    __slots__ = ("_status_text", "status", "url")

    def __init__(
        self,
        body: Body | Response | None = None,
        status: HTTPStatus | int | None = None,
        status_text: str = "",
        headers: HeadersInit | None = None,
        web_socket: None = None,
    ) -> None:
        if web_socket is not None:
            raise NotImplementedError("a worker has no WebSockets here; stream the answer instead")
        if isinstance(body, Response):
            if status is not None or status_text or headers is not None:
                raise ValueError("Expected no options when constructing Response from a Response")
            super().__init__(Headers(body.headers), body.take_body())
            status, status_text, self.url = body.status, body._status_text, body.url
        else:
            own = Headers(headers)
            made, content_type = make_body(body, where="Response")
            if content_type and "content-type" not in own:
                own.set("content-type", content_type)
            super().__init__(own, made)
            self.url = ""
        self.status = _checked_status(200 if status is None else status)
        if self._body is not None and self.status in NULL_BODY:
            raise TypeError(f"Response with null body status ({self.status}) cannot have body")
        self._status_text = status_text

    _status_text: str
    status: int
    url: str
    """Where it came from, after redirects; empty for one that was made here."""

    json: _Json = _Json()

    @property
    def status_text(self) -> str:
        """HTTP's own if none is given; it does not travel, as HTTP/2 has none."""
        return self._status_text or _phrase(self.status)

    @property
    def statusText(self) -> str:
        """`status_text`, by the web's name."""
        return self.status_text

    @property
    def ok(self) -> bool:
        """Whether its status is of the 200s."""
        return 200 <= self.status < 300

    @property
    def js_object(self) -> Self:
        """Return it; projects that ran in Pyodide ask for this."""
        return self

    async def read_json(self, **options: Any) -> Any:
        """Return the body as JSON; `response.json()` is this. `options` are those of `json.loads`."""
        return await self._read_json(**options)

    def raise_for_status(self) -> None:
        """Raise `OSError` for a status of 400 or more."""
        if self.status >= 400:
            kind = "Client" if self.status < 500 else "Server"
            raise OSError(f"{self.status} {kind} Error: {self.status_text} for url: {self.url}")

    def clone(self) -> Response:
        """Return one with the same body; `OSError` if that has been read."""
        return self._with_body(self.peek_body())

    def replace_body(self, body: Body | None) -> Response:
        """Return one with the same status and headers, and another body."""
        return self._with_body(make_body(body, where="Response")[0])

    @staticmethod
    def redirect(url: str, status: HTTPStatus | int = 302) -> Response:
        """Make a response that sends the client elsewhere; `ValueError` unless 301, 302, 303, 307, 308."""
        if int(status) not in REDIRECTS:
            raise ValueError(f"{int(status)} is no status of a redirect")
        return Response(None, status=status, headers=[("location", url)])

    @staticmethod
    def from_json(
        data: Any,
        status: HTTPStatus | int = 200,
        status_text: str = "",
        headers: HeadersInit | None = None,
    ) -> Response:
        """Make a response of what `json.dumps` knows; `Response.json(data)` is this."""
        own = Headers(headers)
        if "content-type" not in own:
            own.set("content-type", "application/json")
        return Response(json.dumps(data).encode(), status, status_text, own)

    def __repr__(self) -> str:
        marks = [f"status={self.status}", f"status_text={self.status_text!r}"]
        if (kind := self._headers.get("content-type")) is not None:
            marks.append(f"content_type={kind!r}")
        if self.url:
            marks.append(f"url={self.url!r}")
        return f"Response({', '.join(marks)})"

    @classmethod
    def received(cls, response: HostResponse) -> Response:
        """Make what a call returned into what its caller gets."""
        made = cls.__new__(cls)
        HasBody.__init__(made, Headers.of_pairs(response.headers), received_body(response.body))
        made.status = response.status
        made._status_text = ""
        made.url = response.url
        return made

    def _with_body(self, body: Any) -> Response:
        made = Response.__new__(Response)
        HasBody.__init__(made, Headers(self._headers), body)
        made.status, made._status_text, made.url = self.status, self._status_text, self.url
        return made


FetchResponse = Response
"""What `fetch` returns."""


def _checked_status(status: HTTPStatus | int) -> int:
    if isinstance(status, bool) or not isinstance(status, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a status is an int, not {type(status).__name__}")
    if not 200 <= status <= 599:
        raise ValueError(f"the status of a response is between 200 and 599, not {int(status)}")
    return int(status)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
