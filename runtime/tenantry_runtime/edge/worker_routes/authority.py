"""The one host that a request is for: by it the request is routed, and of it the worker's URL is made.

| a request | |
|---|---|
| with one `Host` (in HTTP/2, `:authority`) that is NAME, IPv4 or [IPv6], with or without a port | is for that |
| of HTTP/1.0 without one | is for none: it reaches what is found by path alone |
| with several, or one that is anything else | 400, RFC 9112 section 3.2 |

Anything else are users before an `@`, percent signs, spaces, ports over 65535, and an empty name in HTTP/1.1. A
host is in lower case and without the dot at its end from here on, in the worker's `Host` too.

Where the target is a whole URL, the server in front of this puts its authority into `Host` if there is none,
and else leaves it out. So such a request is for its `Host`, in routing and URL alike; proxies make the two one.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple

from starlette.types import Scope

from .pages import Refused

MAX_CHARS = 253
"""Of a name in DNS."""
MAX_BYTES = 300
"""Of a name with a port."""
MAX_PORT = 65_535

_AUTHORITY = re.compile(
    rb"(?:(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?|\[(?P<ipv6>[0-9a-f:.]+)\])(?::(?P<port>[0-9]{0,5}))?",
    re.IGNORECASE,
)


class Authority(NamedTuple):
    """A host, and a port where one was named."""

    name: str
    """In lower case, without a dot at its end; IPv6 in brackets. Empty: none was named."""
    port: int | None = None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


def authority_of(scope: Scope) -> Authority:
    """Return what a request is for; raise `Refused`."""
    found: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"host":
            if found is not None:
                raise Refused(400, "the request has more than one Host")
            found = value
    if not found:
        if scope["http_version"] in ("1", "1.0"):
            return Authority("")
        raise _no_host()
    return read_authority(bytes(found))


def read_authority(text: bytes) -> Authority:
    """Read a host with or without a port; raise `Refused`."""
    read = _AUTHORITY.fullmatch(text) if len(text) <= MAX_BYTES else None
    if read is None:
        raise _no_host()
    port = int(read["port"]) if read["port"] else None
    if port is not None and port > MAX_PORT:
        raise _no_host()
    if read["ipv6"] is not None:
        return Authority(_ipv6(read["ipv6"].decode("ascii")), port)
    name = read["name"].decode("ascii").lower()
    if len(name) > MAX_CHARS:
        raise _no_host()
    return Authority(name, port)


def _ipv6(text: str) -> str:
    try:
        return f"[{IPv6Address(text).compressed}]"
    except AddressValueError as error:
        raise _no_host() from error


def _no_host() -> Refused:
    return Refused(400, "the request has no Host that is a name or address, with or without a port")
