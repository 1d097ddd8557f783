"""HTTP requests: what an entrypoint is given, and what `fetch` sends."""

from __future__ import annotations

from http import HTTPMethod
from typing import Any, TypedDict, Unpack

from ._abort import AbortSignal
from ._body import Body, HasBody, make_body, received_body
from ._headers import Headers, HeadersInit
from ._host import HostRequest
from ._values import JsonObject, wrap

REDIRECT_MODES = ("follow", "manual", "error")


class RequestInitCfProperties(TypedDict, total=False):
    """What Cloudflare's network can be told of a request; there is none here, so nothing heeds it."""

    cacheEverything: bool
    cacheKey: str
    cacheTtl: int
    cacheTtlByStatus: dict[str, int]


class FetchKwargs(TypedDict, total=False):
    """What `Request` and `fetch` are told next to the URL.

    `cf`, `cache`, `credentials`, `integrity`, `keepalive`, `mode`, `referrer` and `referrerPolicy` are
    a browser's and Cloudflare's business: they are taken, and nothing heeds them.
    """

    method: str
    headers: HeadersInit | None
    body: Body | None
    redirect: str
    """`follow` (the default), `manual` or `error`."""
    signal: AbortSignal | None
    cf: RequestInitCfProperties | dict[str, Any] | None
    cache: str
    credentials: str
    integrity: str
    keepalive: bool
    mode: str
    referrer: str
    referrerPolicy: str


class Request(HasBody):
    """A request; its body is read once.

    A body makes a request without a method a `TypeError`, as on the web: name one that has a body.
    """

    __slots__ = ("_method", "_url", "cf", "own_signal", "redirect")

    def __init__(self, input: Request | str, **options: Unpack[FetchKwargs]) -> None:
        refuse_unknown(options, where="Request")
        given = input if isinstance(input, Request) else None
        if given is None and not isinstance(input, str):
            raise TypeError(f"a Request is made of a URL or a Request, not {type(input).__name__}")
        headers = options.get("headers")
        if headers is None and given is not None:
            headers = given.headers
        own = Headers(headers)
        self._url = given.url if given is not None else normalized_url(str(input))
        self._method = as_method(options.get("method") or (given.method if given else "GET"))
        body: Any = options.get("body")
        if body is not None:
            if self._method in ("GET", "HEAD"):
                raise TypeError(f"Request with a {self._method} method cannot have a body")
            body, content_type = make_body(body, where="Request")
            if content_type and "content-type" not in own:
                own.set("content-type", content_type)
        elif given is not None:
            body = given.take_body()
        super().__init__(own, body)
        self.redirect = options.get("redirect") or (given.redirect if given else "follow")
        if self.redirect not in REDIRECT_MODES:
            raise TypeError(f"redirect is one of {REDIRECT_MODES}, not {self.redirect!r}")
        self.own_signal = options.get("signal") or (given.own_signal if given else None)
        self.cf = wrap(options.get("cf")) or (given.cf if given else None)

    redirect: str
    own_signal: AbortSignal | None
    """`signal`, if anybody can abort it."""
    cf: JsonObject | None
    """Nothing fills it here."""

    @property
    def method(self) -> HTTPMethod | str:
        """Its method; one that HTTP does not define is a `str`."""
        try:
            return HTTPMethod(self._method)
        except ValueError:
            return self._method

    @property
    def signal(self) -> AbortSignal:
        """Aborted when nobody waits for the response any more."""
        if self.own_signal is None:
            self.own_signal = AbortSignal()
        return self.own_signal

    @property
    def url(self) -> str:
        """Its absolute URL."""
        return self._url

    @property
    def js_object(self) -> Request:
        """Return it; projects that ran in Pyodide ask for this."""
        return self

    async def json(self, **options: Any) -> Any:
        """Return the body as JSON; `options` are those of `json.loads`."""
        return await self._read_json(**options)

    def clone(self) -> Request:
        """Return one with the same body; `OSError` if that has been read."""
        made = Request._make(
            self._method, self._url, Headers(self._headers), self.peek_body(), self.own_signal
        )
        made.redirect, made.cf = self.redirect, self.cf
        return made

    def __repr__(self) -> str:
        return f"Request(method={self._method!r}, url={self._url!r})"

    @classmethod
    def received(cls, request: HostRequest, signal: AbortSignal) -> Request:
        """Make what an entrypoint is given."""
        headers = Headers.of_pairs(request.headers)
        return cls._make(request.method, request.url, headers, received_body(request.body), signal)

    @classmethod
    def _make(
        cls, method: str, url: str, headers: Headers, body: Any, signal: AbortSignal | None
    ) -> Request:
        request = cls.__new__(cls)
        HasBody.__init__(request, headers, body)
        request._method = method
        request._url = url
        request.redirect = "follow"
        request.own_signal = signal
        request.cf = None
        return request


def as_method(method: str) -> str:
    """Return a method's name, in upper case. Raises `TypeError` for what is none."""
    name = str(method).upper()
    if not name.isascii() or not name.replace("-", "").isalpha():
        raise TypeError(f"{method!r} is no HTTP method")
    return name


def normalized_url(url: str) -> str:
    """Return an absolute URL, with a path. Raises `ValueError` for another."""
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower() not in ("http", "https") or not rest.strip("/?#"):
        raise ValueError(f"{url!r} is no absolute URL; one begins with https:// or http://")
    end = min((place for mark in "/?#" if (place := rest.find(mark)) >= 0), default=len(rest))
    host, tail = rest[:end], rest[end:]
    slash = "" if tail.startswith("/") else "/"
    return f"{scheme.lower()}://{host.lower() if '@' not in host else host}{slash}{tail}"


def refuse_unknown(options: FetchKwargs, *, where: str) -> None:
    """Raise `TypeError` for an option that nobody knows: a typing error would go unseen."""
    unknown = [name for name in options if name not in FetchKwargs.__annotations__]
    if unknown:
        raise TypeError(f"{where}() got an unexpected keyword argument {unknown[0]!r}")
