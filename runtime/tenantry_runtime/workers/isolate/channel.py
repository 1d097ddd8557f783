"""The runtime's end of an isolate's stream: hostile bytes in, frames out.

| of one isolate | at most |
|---|---|
| bytes held | one frame, and what one read brings |
| frames read before others have their turn | `MAX_FRAMES_PER_TURN` |
| bytes written that it does not read | `WRITE_HIGH_BYTES` and what is under way; then it is not read either |

An isolate always reads, whatever it writes, so that not reading it while it does not read ends in no
deadlock, only in its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from time import perf_counter

import anyio
import msgspec

from tenantry_runtime.workers.frames import MAX_FRAME_BYTES, FromIsolate
from tenantry_runtime.workers.guest.wire import HEADER, append_frame

from .interface import Ending, EndingKind, Violation

MAX_FRAMES_PER_TURN = 128
"""About a millisecond's work: what one isolate can keep the others waiting."""
MAX_HELD_BYTES = 64 << 10
"""Of frames that wait for the turn's end; more is written at once."""
WRITE_HIGH_BYTES = 256 << 10
MAX_PIECE_BYTES = 16 << 10
"""Of one write that the kernel hands on in one piece, so that it is read whole or not at all."""

_decode = msgspec.msgpack.Decoder(FromIsolate).decode


class Channel(asyncio.Protocol):
    """Reads frames for `receive`, which raises `Violation`; tells `ended` once why no more come."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: socket.socket,
        receive: Callable[[FromIsolate], None],
        ended: Callable[[Ending], None],
    ) -> None:
        self.num_frames = 0
        self.num_bytes = 0
        self.busy_s = 0.0
        self.frame_bytes = 0
        """Of the frame that is being received."""
        self._loop = loop
        self._connection = connection
        self._receive = receive
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._is_over = False
        self._in = bytearray()
        self._out = bytearray()
        self._num_written = 0
        self._unread_from = 0
        """Where the last write begins, if that is read whole or not at all; else where it ends."""
        self._is_flushing = False
        self._has_backlog = False
        self._writable: anyio.Event | None = None
        """Set when the isolate has read enough; None: it has."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            # it could not be written to; what it wrote before it went is still there
            self._take_last_words()
        # an error tells that something is unread, so that the last is
        unread_from = self._num_written if exc is None else self._unread_from
        self.end(Ending(EndingKind.CLOSED, "the isolate closed its stream", unread_from))

    def data_received(self, data: bytes) -> None:
        self.num_bytes += len(data)
        self._in += data
        if not self._has_backlog:
            self._turn()

    def pause_writing(self) -> None:
        self._writable = anyio.Event()
        self._choose_reading()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None
        self._choose_reading()

    @property
    def position(self) -> int:
        """Of the byte that is sent next."""
        return self._num_written + len(self._out)

    async def room(self) -> None:
        """Wait until the isolate has read enough of what it was sent. Returns at once if it ended."""
        while self._writable is not None and not self._is_over:
            await self._writable.wait()

    def send(self, frame: object) -> None:
        """Send a frame with the turn's others; nothing after the end. Raises as `append_frame`."""
        if self._is_over:
            return
        append_frame(self._out, frame)
        if len(self._out) > MAX_HELD_BYTES:
            self.flush()
        elif not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all that was sent; the transport keeps what the system has no room for."""
        self._is_flushing = False
        if self._out and self._transport is not None and not self._is_over:
            out, self._out = self._out, bytearray()
            transport, began = self._transport, self._num_written
            self._num_written = began + len(out)
            if not transport.is_closing():
                is_piece = len(out) <= MAX_PIECE_BYTES and not transport.get_write_buffer_size()
                self._unread_from = began if is_piece else self._num_written
            transport.write(out)

    def end(self, ending: Ending) -> None:
        """Close the stream for a reason; only the first counts."""
        if self._is_over:
            return
        self._is_over = True
        self._in = bytearray()
        self._out = bytearray()
        if self._writable is not None:
            self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        self._ended(ending)

    def _turn(self) -> None:
        """Take as many frames as one turn has, and leave the rest to the next."""
        if self._is_over:
            return
        began_s = perf_counter()
        try:
            self._has_backlog = self._take_frames()
        except Violation as violation:
            self.end(Ending(EndingKind.VIOLATION, str(violation)))
        except (msgspec.DecodeError, RecursionError) as error:
            self.end(Ending(EndingKind.VIOLATION, f"a frame does not decode: {error}"))
        self.busy_s += perf_counter() - began_s
        if self._has_backlog and not self._is_over:
            self._loop.call_soon(self._turn)
        self._choose_reading()

    def _take_last_words(self) -> None:
        while not self._is_over:
            try:
                last_words = self._connection.recv(MAX_FRAME_BYTES)
            except OSError:
                return
            if not last_words:
                return
            self.data_received(last_words)
            while self._has_backlog and not self._is_over:
                self._turn()

    def _take_frames(self) -> bool:
        buffer = self._in
        start, end = 0, len(buffer)
        frames_left = MAX_FRAMES_PER_TURN
        with memoryview(buffer) as view:
            while end - start >= HEADER.size:
                (num_bytes,) = HEADER.unpack_from(buffer, start)
                if num_bytes > MAX_FRAME_BYTES:
                    raise Violation(
                        f"a frame of {num_bytes} bytes; it has at most {MAX_FRAME_BYTES}"
                    )
                body = start + HEADER.size
                if body + num_bytes > end or not frames_left:
                    break
                frames_left -= 1
                start = body + num_bytes
                self.frame_bytes = num_bytes
                self.num_frames += 1
                with view[body:start] as encoded:
                    frame = _decode(encoded)
                self._receive(frame)
        del buffer[:start]
        return not frames_left

    def _choose_reading(self) -> None:
        if self._transport is None or self._is_over:
            return
        if self._has_backlog or self._writable is not None:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
