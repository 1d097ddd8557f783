"""The isolate's end of the stream: frames in, and frames out, together once a turn of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tenantry_runtime.workers.frames import MAX_DATA_BYTES, Data, ToIsolate

from .wire import HEADER, append_frame

MAX_HELD_BYTES = 64 << 10
"""That wait for the turn's end; more is written at once."""

_decode = msgspec.msgpack.Decoder(ToIsolate).decode


class Channel(asyncio.Protocol):
    """Reads and writes frames in the loop's own thread; `receive` hears of each that comes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receive: Callable[[ToIsolate], None],
        closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._receive = receive
        self._closed = closed
        self._transport: asyncio.WriteTransport | None = None
        self._in = bytearray()
        self._out = bytearray()
        self._is_flushing = False
        # the last message of `_out`, kept apart while more of the same stream may come
        self._stream: int | None = None
        self._tail = bytearray()
        self._aside: object = None
        """A frame that goes with the next ones that are written."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closed()

    def data_received(self, data: bytes) -> None:
        buffer = self._in
        buffer += data
        start, end = 0, len(buffer)
        with memoryview(buffer) as view:
            while end - start >= HEADER.size:
                stop = start + HEADER.size + HEADER.unpack_from(buffer, start)[0]
                if stop > end:
                    break
                self._receive(_decode(view[start + HEADER.size : stop]))
                start = stop
        del buffer[:start]
        # behind the first steps of the tasks that the frames began
        self._flush_soon()

    def send(self, frame: object) -> None:
        """Send a frame with the turn's others. Raises as `append_frame` does."""
        if self._stream is not None:
            self._seal()
        append_frame(self._out, frame)
        self._wrote()

    def send_data(self, stream: int, piece: bytes | memoryview) -> None:
        """Send bytes of a stream, at most `MAX_DATA_BYTES`, as one frame with those just before."""
        if self._stream != stream or len(self._tail) + len(piece) > MAX_DATA_BYTES:
            if self._stream is not None:
                self._seal()
            self._stream = stream
        self._tail += piece
        self._wrote()

    def interject(self, frame: object, *, is_sending: bool) -> None:
        """Send a frame at once, or with what is being sent: for whoever comes in between."""
        self._aside = frame
        if not is_sending:
            self.flush()

    def flush(self) -> None:
        """Hand all that was sent to the system, or what it has no room for to the transport."""
        self._is_flushing = False
        if self._stream is not None:
            self._seal()
        while self._out or self._aside is not None:
            if self._aside is not None:
                frame, self._aside = self._aside, None
                append_frame(self._out, frame)
            out, self._out = self._out, bytearray()
            if self._transport is not None:
                self._transport.write(out)

    def close(self) -> None:
        """Close the stream once all has been written."""
        if self._transport is not None:
            self._transport.close()

    def num_waiting(self) -> int:
        """Return the bytes that the runtime has not taken yet."""
        transport = self._transport
        return len(self._out) + (0 if transport is None else transport.get_write_buffer_size())

    def _wrote(self) -> None:
        if len(self._out) + len(self._tail) > MAX_HELD_BYTES:
            self.flush()
        else:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def _seal(self) -> None:
        stream, self._stream = self._stream, None
        tail, self._tail = self._tail, bytearray()
        assert stream is not None
        append_frame(self._out, Data(stream, bytes(tail)))
