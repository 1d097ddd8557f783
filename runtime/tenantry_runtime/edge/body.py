"""Reading a request's body, up to a limit."""

from __future__ import annotations

import anyio
from starlette.requests import ClientDisconnect, Request

from tenantry_runtime.errors import BodyTooLarge, InvalidInput, RequestTimeout

MAX_DISCARDED_BYTES = 64 << 20
"""Of a body over the limit, so much is read and thrown away before the answer. Most clients send all
before they read; one whose connection closes under it would see that instead of the answer."""


async def read_body(request: Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """Read the whole body.

    Raises `BodyTooLarge` for one over the limit, at once if much of it is still to come,
    `RequestTimeout` for one that does not come to its end in time, and starlette's
    `ClientDisconnect` if the client leaves. Holds no more than the limit in memory.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise InvalidInput("content-encoding", f"{encoding!r} is not supported")
    declared = request.headers.get("content-length", "0")
    # cut: a longer number is too large as well, and slow to read
    num_declared = int(declared[:18]) if declared.isdecimal() else 0
    # a client that asks before it sends is told before it sends
    max_discarded = 0 if "expect" in request.headers else MAX_DISCARDED_BYTES
    if num_declared > max_bytes + max_discarded:
        raise BodyTooLarge(max_bytes)
    reader = _Reader(request, max_bytes, max_discarded)
    with anyio.move_on_after(timeout_s):
        await reader.read()
    if reader.num_bytes > max_bytes:
        raise BodyTooLarge(max_bytes)
    if not reader.is_whole:
        raise RequestTimeout
    return bytes(reader.body)


class _Reader:
    def __init__(self, request: Request, max_bytes: int, max_discarded: int) -> None:
        self.body = bytearray()
        self.num_bytes = 0
        self.is_whole = False
        self._request = request
        self._max_bytes = max_bytes
        self._max_read = max_bytes + max_discarded

    async def read(self) -> None:
        while not self.is_whole and self.num_bytes <= self._max_read:
            message = await self._request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk: bytes = message.get("body", b"")
            self.num_bytes += len(chunk)
            if self.num_bytes <= self._max_bytes:
                self.body += chunk
            else:
                self.body.clear()
            self.is_whole = not message.get("more_body", False)
