"""The server's side of a WebSocket (RFC 6455), as far as tails need it: it tells, and hears little.

| a client sends | what happens |
|---|---|
| text, binary | is read and means nothing here; wrangler says `{"debug": false}` |
| ping | is answered |
| close, or nothing any more | the socket ends |
| a frame without a mask | is read like one with: wrangler's first frame has none, which servers should refuse |
| anything longer than `MAX_FRAME_BYTES`, or what is no frame | ends it |
"""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import NamedTuple

import anyio
import h11
from anyio.abc import SocketStream

MAX_FRAME_BYTES = 4096
"""Of what a client sends."""
MAX_HANDSHAKE_BYTES = 16 << 10

NORMAL, GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1000, 1001, 1002, 1009

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of every handshake; RFC 6455, section 1.3."""
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_KNOWN = frozenset({0x0, _TEXT, 0x2, _CLOSE, _PING, _PONG})
_FIN, _MASKED = 0x80, 0x80


class Closed(Exception):
    """The socket has ended, or has to; `code` is for the other side, None where it is gone."""

    def __init__(self, code: int | None) -> None:
        self.code = code
        super().__init__(code)


class Handshake(NamedTuple):
    """What a client asks for."""

    path: str
    key: str
    subprotocols: tuple[str, ...]


class Refused(Exception):
    """A request that is no handshake for a WebSocket."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(status)


async def read_handshake(stream: SocketStream) -> tuple[Handshake, bytes]:
    """Read a request; return what it asks for, and what came behind it. Raises `Refused`."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HANDSHAKE_BYTES)
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            raise Refused(400) from error
        if isinstance(event, h11.Request):
            break
        if event is not h11.NEED_DATA:
            raise Refused(400)
        try:
            connection.receive_data(await stream.receive(MAX_HANDSHAKE_BYTES))
        except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
            raise Refused(400) from error
    return _asked(event), connection.trailing_data[0]


def accepting(handshake: Handshake, subprotocol: str) -> bytes:
    """Return the response that opens the socket."""
    digest = hashlib.sha1(handshake.key.encode() + _GUID, usedforsecurity=False).digest()
    lines = [
        b"HTTP/1.1 101 Switching Protocols",
        b"upgrade: websocket",
        b"connection: upgrade",
        b"sec-websocket-accept: " + base64.b64encode(digest),
    ]
    if subprotocol in handshake.subprotocols:
        lines.append(b"sec-websocket-protocol: " + subprotocol.encode())
    return b"\r\n".join([*lines, b"", b""])


def refusing(status: int) -> bytes:
    """Return the response that opens none."""
    return b"HTTP/1.1 %d -\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % status


class WebSocket:
    """An open socket. One task tells, another hears."""

    def __init__(self, stream: SocketStream, already_read: bytes = b"") -> None:
        self._stream = stream
        self._read = bytearray(already_read)
        self._lock = anyio.Lock()

    async def tell(self, text: bytes) -> None:
        """Send a text; raise `Closed` if nobody is there."""
        await self._send(_TEXT, text)

    async def ping(self) -> None:
        """Ask for a sign of life; raise `Closed` if nobody is there."""
        await self._send(_PING, b"")

    async def close(self, code: int) -> None:
        """Say goodbye, if somebody is there."""
        try:
            await self._send(_CLOSE, struct.pack("!H", code))
        except Closed:
            pass

    async def hear(self) -> None:
        """Hear one frame, and answer what is to be answered; raise `Closed` at the end."""
        first, second = await self._take(2)
        opcode, size = first & 0x0F, second & 0x7F
        if first & 0x70 or opcode not in _KNOWN or (opcode >= _CLOSE and size > 125):
            raise Closed(PROTOCOL_ERROR)
        if size == 126:
            (size,) = struct.unpack("!H", await self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self._take(8))
        if size > MAX_FRAME_BYTES:
            raise Closed(TOO_BIG)
        mask = await self._take(4) if second & _MASKED else bytes(4)
        payload = await self._take(size)
        if opcode == _CLOSE:
            raise Closed(NORMAL)
        if opcode == _PING:
            answer = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
            await self._send(_PONG, answer)

    async def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", _FIN | opcode, size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", _FIN | opcode, 126, size)
        else:
            head = struct.pack("!BBQ", _FIN | opcode, 127, size)
        async with self._lock:
            try:
                await self._stream.send(head + payload)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise Closed(None) from error

    async def _take(self, num_bytes: int) -> bytes:
        while len(self._read) < num_bytes:
            try:
                self._read += await self._stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
                raise Closed(None) from error
        taken = bytes(self._read[:num_bytes])
        del self._read[:num_bytes]
        return taken


def _asked(request: h11.Request) -> Handshake:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in request.headers:
        headers.setdefault(name, []).append(value)

    def tokens(name: bytes) -> list[str]:
        listed = b",".join(headers.get(name, [])).decode("latin-1").split(",")
        return [token.strip() for token in listed if token.strip()]

    key = headers.get(b"sec-websocket-key", [b""])[0].decode("latin-1")
    upgrades = [token.lower() for token in tokens(b"upgrade")]
    if request.method != b"GET" or "websocket" not in upgrades or not key:
        raise Refused(400)
    if headers.get(b"sec-websocket-version") != [b"13"]:
        raise Refused(426)
    path = request.target.decode("latin-1").partition("?")[0]
    return Handshake(path, key, tuple(tokens(b"sec-websocket-protocol")))
