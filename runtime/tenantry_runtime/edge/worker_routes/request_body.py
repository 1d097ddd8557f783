"""The body of a request for a worker: whole where it is small, else in pieces, as the worker takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from tenantry_runtime.workers.isolate import StreamBroken

from .departure import Departure
from .limits import MAX_INLINE_BYTES, RouteLimits
from .pages import Refused
from .request import Head

NUM_DIGITS = 18
"""Of a content-length that is believed; a longer number is too large in any case."""


async def open_body(
    head: Head, receive: Receive, departure: Departure, limits: RouteLimits
) -> bytes | RequestBody | None:
    """Return a body that is small, or one to read; None where there is none.

    Arms `departure` where nothing more comes. Raises `Refused` for one that says that it is over the limit, and
    `ClientDisconnect`.
    """
    declared = head.get("content-length")
    if not declared and not head.get("transfer-encoding"):
        if head.http_version.startswith("1"):
            departure.arm()
            return None
        # HTTP/2 says so with the headers' frame, which is not shown; the first piece is
        body = RequestBody(receive, departure, limits)
        if await body.is_empty():
            return await body.as_bytes()
        departure.meanwhile(body.until_wanted_no_more)
        return body
    num_declared = _number(declared)
    if num_declared is not None and num_declared > limits.max_body_bytes:
        raise too_large(limits)
    body = RequestBody(receive, departure, limits)
    if num_declared is not None and num_declared <= MAX_INLINE_BYTES:
        return await body.as_bytes()
    departure.meanwhile(body.until_wanted_no_more)
    return body


def too_large(limits: RouteLimits) -> Refused:
    return Refused(413, f"the request's body is larger than {limits.max_body_bytes} bytes")


class RequestBody:
    """Pieces, read from the client only when somebody wants the next one.

    That the client has gone shows behind its pieces alone. So what nobody reads is thrown away after a time.
    """

    def __init__(self, receive: Receive, departure: Departure, limits: RouteLimits) -> None:
        self.problem: Refused | None = None
        """Why it broke off: it was too large, or too slow."""
        self._receive = receive
        self._departure = departure
        self._limits = limits
        self._num_bytes = 0
        self._is_whole = False
        self._first: bytes | None = None
        self._is_reading = False
        self._is_unwanted = False
        self._read_s = anyio.current_time()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Raises `StreamBroken` where it breaks off."""
        return self._pieces()

    async def aclose(self) -> None:
        """Want no more; what still comes is thrown away."""
        self._is_whole = True
        self._departure.arm()

    async def until_wanted_no_more(self) -> None:
        """Throw away what is left once nobody has asked for a piece for so long."""
        timeout_s = self._limits.unread_timeout_s
        while not self._is_whole:
            if self._is_reading:
                # that has a time limit of its own
                await anyio.sleep(timeout_s)
                continue
            left_s = self._read_s + timeout_s - anyio.current_time()
            if left_s <= 0:
                self._is_unwanted = True
                await self.aclose()
                return
            await anyio.sleep(left_s)

    async def is_empty(self) -> bool:
        """Say whether there is nothing in it, having read one piece."""
        self._first = await self._read()
        return not self._first and self._is_whole

    async def as_bytes(self) -> bytes:
        """Read it whole; only one that said that it is small."""
        pieces = [self._first or b""]
        while not self._is_whole:
            pieces.append(await self._read())
        return b"".join(pieces)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._first:
            piece, self._first = self._first, None
            yield piece
        while not self._is_whole:
            try:
                piece = await self._read()
            except Refused as refused:
                raise StreamBroken(refused.problem) from refused
            except ClientDisconnect as error:
                raise StreamBroken("the client has gone away") from error
            if piece:
                yield piece
        if self._is_unwanted:
            raise StreamBroken("nothing of it was read for too long, and the rest was thrown away")

    async def _read(self) -> bytes:
        message: Message | None = None
        self._is_reading = True
        try:
            with anyio.move_on_after(self._limits.body_timeout_s):
                message = await self._receive()
        finally:
            self._is_reading, self._read_s = False, anyio.current_time()
        if message is None:
            raise self._failed(Refused(408, "the request's body did not come"))
        if message["type"] == "http.disconnect":
            self._is_whole = True
            self._departure.happened()
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        self._num_bytes += len(piece)
        if self._num_bytes > self._limits.max_body_bytes:
            raise self._failed(too_large(self._limits))
        if not message.get("more_body", False):
            self._is_whole = True
            self._departure.arm()
        return piece

    def _failed(self, problem: Refused) -> Refused:
        self.problem = problem
        self._is_whole = True
        self._departure.arm()
        return problem


def _number(text: str) -> int | None:
    return int(text[:NUM_DIGITS]) if text.isascii() and text.isdecimal() else None
