"""A worker's response on its way to the client, at the client's pace."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import TypeAlias

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Send

from tenantry_runtime.workers.headers import HOP_BY_HOP
from tenantry_runtime.workers.interface import ByteStream, HeaderList, HttpResponse, WorkerFailed
from tenantry_runtime.workers.outcome import Outcome

from .departure import Departure
from .limits import MAX_RESPONSE_HEADER_BYTES as MAX_HEADER_BYTES

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
        *("strict-transport-security", "alt-svc", "nel", "report-to", "accept-ch"),
    }
)
"""Headers that hold for a whole origin, which is not a worker's to speak for where it is shared."""

_BODILESS = frozenset({204, 205, 304})


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

        Raises `WorkerFailed` for headers that are none and a body of another length than they declare, `ClientDisconnect` for a client that takes nothing for too
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
            if response.status not in _BODILESS:
                # of HEAD what a GET would have had, if the worker says it and made no body
                length = declared if not (self._has_body or body) and declared else len(body)
                headers.append((b"content-length", b"%d" % length))
            await self._whole(response.status, headers, body if has_body else b"")
            return
        if declared is not None:
            headers.append((b"content-length", b"%d" % declared))
        if not has_body:
            await body.aclose()
            await self._whole(response.status, headers, b"")
            return
        if declared is None:
            await self._begin(response.status, headers)
            await self._stream(body)
        else:
            await self._stream_declared(response.status, headers, body, declared)

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

    async def _stream(self, body: AsyncIterable[bytes]) -> None:
        async for piece in body:
            if piece:
                await self._deliver(
                    {"type": "http.response.body", "body": piece, "more_body": True}
                )
        self._departure.over()
        await self._deliver({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream_declared(
        self, status: int, headers: RawHeaders, body: ByteStream, declared: int
    ) -> None:
        """Raises `WorkerFailed` where the body is of another length, after what fits of it."""
        pieces = _checked_pieces(body, declared)
        async with aclosing(pieces):
            # before the status is out, so that what is too long at once is told as any fault
            first = await anext(pieces)
            await self._begin(status, headers)
            await self._stream(_with_first(first, pieces))

    async def _deliver(self, message: Message) -> None:
        with anyio.move_on_after(self._stall_timeout_s) as deadline:
            await self._send(message)
        if deadline.cancelled_caught:
            raise ClientDisconnect


async def _checked_pieces(body: ByteStream, declared: int) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body, at least one, and never more than it says that it has."""
    num_bytes = 0
    async for piece in body:
        num_bytes += len(piece)
        if num_bytes > declared:
            raise _another_length(declared, f"at least {num_bytes}")
        yield piece
    if num_bytes != declared:
        raise _another_length(declared, str(num_bytes))
    yield b""


async def _with_first(first: bytes, others: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in others:
        yield piece


def _another_length(declared: int, num_bytes: str) -> WorkerFailed:
    return WorkerFailed(
        Outcome.EXCEPTION, f"the response declared {declared} bytes and had {num_bytes}"
    )


def _checked(headers: HeaderList) -> tuple[RawHeaders, int | None]:
    """Return headers as they are sent, and the length that they declare.

    Raises `WorkerFailed` for names and values that HTTP does not have, and for too many of them.
    """
    num_bytes = sum(len(name) + len(value) for name, value in headers)
    if num_bytes > MAX_HEADER_BYTES:
        raise WorkerFailed(
            Outcome.EXCEPTION,
            f"the response's headers have {num_bytes} bytes; {MAX_HEADER_BYTES} are allowed",
        )
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
