"""Requests to a control plane, and what it answers: a result, or errors with codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
import httpx
import msgspec

from tenantry_cli.workers.access import Account

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 60.0
UPLOAD_TIMEOUT_S = 900.0
"""Dependencies are resolved while an upload waits."""


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: int = 0
    message: str = ""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    success: bool = False
    errors: tuple[_Problem, ...] | None = None
    messages: tuple[_Problem | str, ...] | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    result_info: msgspec.Raw = msgspec.Raw(b"null")


class _PageNumbers(msgspec.Struct, frozen=True, kw_only=True):
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """A result, where the next begins, and what else is said."""

    result: T
    cursor: str | None
    """None: this is the last."""
    messages: tuple[str, ...] = ()
    """Of what is no error, but not as it was asked for."""


class Unreachable(click.ClickException):
    """No answer came: says from where, and why."""


class Refused(click.ClickException):
    """The control plane said no. Its codes and texts stay readable."""

    def __init__(
        self, *, method: str, path: str, status: int, problems: tuple[tuple[int, str], ...]
    ) -> None:
        self.method = method
        self.path = path
        self.status = status
        self.problems = problems
        said = "\n".join(
            f"{message} [code: {code}]" if code else message for code, message in problems
        )
        super().__init__(said or f"{method} {path} was answered with {status} and no reason")

    @property
    def is_missing(self) -> bool:
        """Whether what was asked for is not there."""
        return self.status == 404

    def has_code(self, *codes: int) -> bool:
        """Tell whether one of its errors has one of the codes."""
        return any(code in codes for code, _ in self.problems)


class ControlPlane:
    """One account on one control plane. Use it as a context manager."""

    def __init__(self, account: Account, *, transport: httpx.BaseTransport | None = None) -> None:
        self.account = account
        self._http = httpx.Client(
            transport=transport,
            headers={"authorization": f"Bearer {account.api_token}", "user-agent": "workerctl"},
            timeout=httpx.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, type: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """Return a result. A path is below the account's, or absolute below the base URL with `//`."""
        return self.send("GET", path, type, params=params)

    def send(
        self,
        method: str,
        path: str,
        type: type[T],
        *,
        # Any: JSON
        json: Any = None,
        params: Mapping[str, str] | None = None,
    ) -> T:
        """Send JSON, if any, and return the result. Raises Refused, Unreachable."""
        request = self.request(method, path, json=json, params=params)
        return self.answer(request, type).result

    def order(
        self,
        method: str,
        path: str,
        *,
        # Any: JSON; as httpx has it
        json: Any = None,
        params: Mapping[str, str] | None = None,
        **parts: Any,
    ) -> None:
        """Send what has no result that anybody reads. Raises as `send` does."""
        self.answer(self.request(method, path, json=json, params=params, **parts), msgspec.Raw)

    def page(self, path: str, type: type[T], *, params: Mapping[str, str]) -> Page[T]:
        """Return one page of results, and the cursor of the next."""
        return self.answer(self.request("GET", path, params=params), type)

    def request(
        self,
        method: str,
        path: str,
        *,
        # Any: as httpx has it
        json: Any = None,
        params: Mapping[str, str] | None = None,
        **parts: Any,
    ) -> httpx.Request:
        """Build a request, which `answer` or `raw` sends."""
        if json is not None:
            parts["content"] = msgspec.json.encode(json)
            parts["headers"] = {"content-type": "application/json"}
        return self._http.build_request(method, self.url(path), params=params, **parts)

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        if path.startswith("//"):
            return self.account.base_url + path[1:]
        return self.account.url + path

    def answer(self, request: httpx.Request, type: type[T]) -> Page[T]:
        """Send a request, and return what its envelope holds."""
        response = self.raw(request)
        try:
            envelope = msgspec.json.decode(response.content, type=_Envelope)
            result = msgspec.json.decode(envelope.result or b"null", type=type)
            info = msgspec.json.decode(envelope.result_info, type=_PageNumbers | None)
        except msgspec.DecodeError as error:
            raise Unreachable(
                f"{request.method} {request.url.path} was answered with what no control plane "
                f"says ({error}); is {self.account.base_url} the right address?"
            ) from error
        messages = (
            each if isinstance(each, str) else each.message for each in envelope.messages or ()
        )
        return Page(
            result=result,
            cursor=(info.cursor or None) if info else None,
            messages=tuple(filter(None, messages)),
        )

    def raw(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return a response that succeeded, read whole."""
        if request.method in ("POST", "PUT"):
            request.extensions["timeout"] = httpx.Timeout(
                UPLOAD_TIMEOUT_S, connect=CONNECT_TIMEOUT_S
            ).as_dict()
        try:
            response = self._http.send(request)
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.account.base_url} did not answer in time") from error
        except httpx.HTTPError as error:
            raise Unreachable(
                f"cannot reach {self.account.base_url} ({str(error) or type(error).__name__}); "
                "start it (`workerctl dev` on this machine), or say where it is with `workerctl login`"
            ) from error
        if response.is_error:
            raise self._refused(request, response)
        return response

    def _refused(self, request: httpx.Request, response: httpx.Response) -> Refused:
        problems: tuple[tuple[int, str], ...]
        try:
            envelope = msgspec.json.decode(response.content, type=_Envelope)
            problems = tuple((each.code, each.message) for each in envelope.errors or ())
        except msgspec.DecodeError:
            problems = ()
        if response.status_code in (401, 403):
            hint = "is the token right, and has it the scope `deploy`? `workerctl whoami` tells"
            problems = (*problems, (0, hint))
        return Refused(
            method=request.method,
            path=request.url.path,
            status=response.status_code,
            problems=problems,
        )


def pages(plane: ControlPlane, path: str, type: type[list[T]]) -> Iterator[T]:
    """Yield what pages by number hold, to the first empty one."""
    number = 1
    while found := plane.get(path, type, params={"page": str(number), "per_page": "100"}):
        yield from found
        if len(found) < 100:
            return
        number += 1
