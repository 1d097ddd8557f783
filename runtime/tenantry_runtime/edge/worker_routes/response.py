"""A worker's response on its way to the client, at the client's pace."""

from __future__ import annotations

import re
from typing import TypeAlias

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Send

from tenantry_runtime.workers.interface import ByteStream, HeaderList, HttpResponse, WorkerFailed
from tenantry_runtime.workers.outcome import Outcome

from .departure import Departure
from .request import HOP_BY_HOP

RawHeaders: TypeAlias = list[tuple[bytes, bytes]]

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# what a field's value may hold by RFC 9110, and what latin-1 can say
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

_OURS = frozenset({"cf-ray", "date", "server"})
"""Headers that a worker does not set."""

SANDBOX = b"sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
"""A content security policy: an origin that nothing else has, so without cookies and storage."""

_FOR_ONE_ORIGIN = frozenset(
    {
        *("set-cookie", "clear-site-data", "service-worker-allowed"),
        *("strict-transport-security", "alt-svc"),
    }
)
"""Headers that hold for a whole origin, which is not a worker's to speak for where it is shared."""

_BODILESS = frozenset({204, 205, 304})


class BrokenOff(Exception):
    """A response that had begun cannot be brought to its end: the connection has to show it."""


class WorkerResponse:
    """Sends at most one response."""

    def __init__(
        self,
        send: Send,
        departure: Departure,
        *,
        method: str,
        ray: str,
        stall_timeout_s: float,
        has_shared_origin: bool = False,
    ) -> None:
        self.status: int | None = None
        """None until it has begun."""
        self._send = send
        self._departure = departure
        self._has_body = method != "HEAD"
        self._ray = ray.encode()
        self._stall_timeout_s = stall_timeout_s
        self._has_shared_origin = has_shared_origin

    async def forward(self, response: HttpResponse, timing: bytes) -> None:
        """Send a worker's response; `timing` is for Server-Timing.

        Raises `WorkerFailed` for headers that are none, `ClientDisconnect` for a client that takes nothing for too
        long, and what the body raises.
        """
        headers, declared = _checked(response.headers)
        if self._has_shared_origin:
            headers = [each for each in headers if each[0].decode() not in _FOR_ONE_ORIGIN]
            headers.append((b"content-security-policy", SANDBOX))
        headers.append((b"cf-ray", self._ray))
        headers.append((b"server-timing", timing))
        body = response.body
        has_body = self._has_body and response.status not in _BODILESS
        if isinstance(body, bytes):
            if has_body or response.status not in _BODILESS:
                headers.append((b"content-length", b"%d" % len(body)))
            await self._whole(response.status, headers, body if has_body else b"")
            return
        if declared is not None:
            headers.append((b"content-length", b"%d" % declared))
        if not has_body:
            await body.aclose()
            await self._whole(response.status, headers, b"")
            return
        await self._begin(response.status, headers)
        await self._stream(body, declared)

    async def whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        """Send what the edge itself has to say."""
        head = [*headers, (b"content-length", b"%d" % len(body)), (b"cf-ray", self._ray)]
        await self._whole(status, head, body if self._has_body else b"")

    async def _whole(self, status: int, headers: RawHeaders, body: bytes) -> None:
        await self._begin(status, headers)
        # from here on, that the client has gone away is how every exchange ends
        self._departure.over()
        # the server takes a whole body at once
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _begin(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _stream(self, body: ByteStream, declared: int | None) -> None:
        num_bytes = 0
        async for piece in body:
            num_bytes += len(piece)
            if declared is not None and num_bytes > declared:
                raise BrokenOff
            if piece:
                await self._deliver(
                    {"type": "http.response.body", "body": piece, "more_body": True}
                )
        if declared is not None and num_bytes != declared:
            raise BrokenOff
        self._departure.over()
        await self._deliver({"type": "http.response.body", "body": b"", "more_body": False})

    async def _deliver(self, message: Message) -> None:
        with anyio.move_on_after(self._stall_timeout_s) as deadline:
            await self._send(message)
        if deadline.cancelled_caught:
            raise ClientDisconnect


def _checked(headers: HeaderList) -> tuple[RawHeaders, int | None]:
    """Return headers as they are sent, and the length that they declare.

    Raises `WorkerFailed` for names and values that HTTP does not have.
    """
    checked: RawHeaders = []
    declared: int | None = None
    for name, value in headers:
        if _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise WorkerFailed(
                Outcome.EXCEPTION, f"the response's header {name[:64]!r} cannot be sent"
            )
        lowered = name.lower()
        if lowered == "content-length":
            declared = int(value[:18]) if value.isdecimal() else None
        elif lowered not in HOP_BY_HOP and lowered not in _OURS:
            checked.append((lowered.encode(), value.encode("latin-1")))
    return checked, declared
