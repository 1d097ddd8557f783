"""What a worker may ask for: method, URL and headers, checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from tenantry_runtime.workers.bindings.arguments import Arguments, shown, text_of, wrong_type
from tenantry_runtime.workers.headers import HOP_BY_HOP
from tenantry_runtime.workers.interface import ByteStream, CallRefused

MAX_URL_CHARS = 16 << 10
MAX_HEADER_BYTES = 128 << 10
"""Of all together: Cloudflare's limits."""
MAX_HEADERS = 200

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:]*:[0-9a-f:.]*")

_OURS = frozenset(("host", "content-length", "expect", "accept-encoding"))
"""That the host writes by itself, if at all."""

_INTERNAL = ("cf-connecting-", "cf-ray", "cf-worker", "cf-ipcountry", "x-tenantry-")
"""What these begin with says who asks, which a worker does not say."""

_OF_A_BODY = frozenset(("content-type", "content-encoding", "content-language", "content-location"))

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRequest:
    """A request as it is to be sent. A body in pieces can be sent once."""

    method: str
    url: httpx.URL
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | ByteStream = field(default=b"", repr=False)

    @property
    def host(self) -> str:
        """The name in ASCII, or an address without brackets."""
        return _host_of(self.url).rstrip(".")

    @property
    def port(self) -> int:
        return self.url.port or DEFAULT_PORTS[self.url.scheme]

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.url.scheme, self.host, self.port

    def redirected(self, status: int, location: str) -> OutboundRequest:
        """Return what a redirect asks for, as browsers do. Raises `CallRefused`."""
        url = check_url(location, base=self.url)
        method, body, headers = self.method, self.body, list(self.headers)
        is_rewritten = (status in (301, 302) and method == "POST") or (
            status == 303 and method not in ("GET", "HEAD")
        )
        if is_rewritten:
            method, body = "GET", b""
            headers = [each for each in headers if each[0] not in _OF_A_BODY]
        elif not isinstance(body, bytes):
            raise wrong_type("fetch: a redirect asks for the body again, which was a stream")
        there = replace(self, method=method, url=url, headers=headers, body=body)
        if there.origin != self.origin:
            secret = ("authorization", "cookie")
            there = replace(there, headers=[each for each in headers if each[0] not in secret])
        return there


def read_request(args: Arguments, body: ByteStream | None) -> OutboundRequest:
    """Read the arguments of `fetch`; raise `CallRefused`."""
    method = _method(args)
    # Any: whatever MessagePack has
    inline: Any = args.value(3)
    if isinstance(inline, str):
        inline = inline.encode("utf-8", "replace")
    if inline is not None and not isinstance(inline, bytes):
        raise wrong_type(f"fetch: the body must be bytes, not {shown(inline)}")
    content = body if body is not None else inline
    if content is not None and method in ("GET", "HEAD"):
        if content != b"":
            raise wrong_type("fetch: a request with a GET or HEAD method cannot have a body")
        content = None
    return OutboundRequest(
        method=method,
        url=check_url(args.text(1, "the URL")),
        headers=check_headers(args.value(2)),
        body=b"" if content is None else content,
    )


def redirect_mode(args: Arguments) -> str:
    mode = text_of(args.mapping(4, "the options"), "redirect", args.call) or "follow"
    if mode not in ("follow", "manual", "error"):
        raise wrong_type(f"fetch: redirect must be follow, manual or error, not {shown(mode)}")
    return mode


def _method(args: Arguments) -> str:
    method = args.text(0, "the method")
    upper = method.upper()
    if _TOKEN.fullmatch(method) is None or len(method) > 40:
        raise wrong_type(f"fetch: {shown(method)} is no method")
    if upper in ("CONNECT", "TRACE", "TRACK"):
        raise wrong_type(f"fetch: the method {upper} is not allowed")
    known = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
    return upper if upper in known else method


def check_url(text: str, *, base: httpx.URL | None = None) -> httpx.URL:
    """Return a URL of HTTP; a `base` is what it may be relative to. Raises `CallRefused`."""
    if len(text) > MAX_URL_CHARS:
        raise wrong_type(f"fetch: the URL has more than {MAX_URL_CHARS} characters")
    try:
        url = httpx.URL(text) if base is None else base.join(text)
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise wrong_type(f"fetch: {shown(text)} is no valid URL") from error
    if url.scheme not in DEFAULT_PORTS:
        raise wrong_type(f"fetch: {shown(text)} must be an http: or https: URL")
    if url.userinfo:
        raise wrong_type("fetch: a URL with a user or password is not allowed; send a header")
    port = DEFAULT_PORTS[url.scheme] if url.port is None else url.port
    if _HOST.fullmatch(_host_of(url)) is None or not 0 < port <= 65535:
        raise wrong_type(f"fetch: {shown(text)} is no valid URL")
    return url


def _host_of(url: httpx.URL) -> str:
    # `host` would undo the encoding of names in other scripts
    return url.raw_host.decode("ascii").strip("[]")


def check_headers(given: Any) -> list[tuple[str, str]]:
    """Return what of a worker's headers is sent, names in lower case. Raises `CallRefused`."""
    headers = check_all_headers(given)
    named = {
        name.strip().lower()
        for field_, value in headers
        if field_ == "connection"
        for name in value.split(",")
    }
    return [
        (name, value)
        for name, value in without_hops(headers)
        if name not in _OURS and name not in named and not name.startswith(_INTERNAL)
    ]


def check_all_headers(given: Any) -> list[tuple[str, str]]:
    """Return a worker's headers, names in lower case, if each is one. Raises `CallRefused`."""
    if given is None:
        return []
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list | tuple) or len(pairs) > MAX_HEADERS:
        raise wrong_type(f"fetch: headers must be a list of at most {MAX_HEADERS} pairs")
    headers = [_pair(each) for each in pairs]
    if sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise wrong_type(f"fetch: the headers have more than {MAX_HEADER_BYTES} bytes")
    return headers


def without_hops(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what is between two neighbors only."""
    return [each for each in headers if each[0] not in HOP_BY_HOP]


def _pair(pair: Any) -> tuple[str, str]:
    fits = isinstance(pair, list | tuple) and len(pair) == 2
    if not fits or not isinstance(pair[0], str) or not isinstance(pair[1], str):
        raise wrong_type("fetch: a header must be a pair of strings")
    name, value = pair[0].lower(), pair[1].strip(" \t")
    if _TOKEN.fullmatch(name) is None:
        raise wrong_type(f"fetch: {shown(pair[0])} is no name of a header")
    if _VALUE.fullmatch(value) is None:
        raise wrong_type(f"fetch: the value of the header {shown(name)} has what no header may")
    return name, value


def denied(host: str) -> CallRefused:
    return CallRefused("PermissionError", f"fetch: workers may not ask {shown(host)} here")
