"""Where one message ends and the next begins.

| path | frame |
|---|---|
| front - step loop (socketpair) | 4 bytes of length, little-endian, then the message |
| edge - node (gRPC, which delimits) | 1 byte: `LAST`, or `MORE` when the message goes on in the next frame; then at most 1 MiB of it |

A prompt of 262,144 token ids is 1 MiB of packed ids (`wire.py`), so it takes two gRPC frames.
"""

from __future__ import annotations

from collections.abc import Iterator

MAX_FRAME_BYTES = 1 << 20
"""Of one gRPC frame, its first byte not counted."""

MAX_MESSAGE_BYTES = 32 << 20
"""A peer that announces or sends more is broken: 8 million packed token ids, more than any context."""

MORE = b"\x01"
LAST = b"\x00"

_LENGTH_BYTES = 4


class MalformedFrame(ValueError):
    """The peer sent bytes that are no frame."""


def with_length(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "little") + message


class FrameBuffer:
    """Cut a byte stream into messages."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes of the stream and return the messages that they complete."""
        received = self._received
        received += chunk
        messages: list[bytes] = []
        start = 0
        while (body := start + _LENGTH_BYTES) <= len(received):
            num_bytes = int.from_bytes(received[start:body], "little")
            if num_bytes > MAX_MESSAGE_BYTES:
                raise MalformedFrame(f"a message of {num_bytes} bytes, limit {MAX_MESSAGE_BYTES}")
            if body + num_bytes > len(received):
                break

            messages.append(bytes(received[body : body + num_bytes]))
            start = body + num_bytes
        del received[:start]
        return messages


def split(message: bytes) -> Iterator[bytes]:
    """Cut one message into gRPC frames."""
    last_start = (len(message) - 1) // MAX_FRAME_BYTES * MAX_FRAME_BYTES if message else 0
    for start in range(0, last_start, MAX_FRAME_BYTES):
        yield MORE + message[start : start + MAX_FRAME_BYTES]
    yield LAST + message[last_start:]


class FrameJoiner:
    """Put the gRPC frames of each message together again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._num_bytes = 0

    def add(self, frame: bytes) -> bytes | None:
        """Take the next frame and return the message that it completes, if any."""
        kind, part = frame[:1], frame[1:]
        if kind not in (MORE, LAST):
            raise MalformedFrame(f"a frame that begins with {kind!r}")

        self._num_bytes += len(part)
        if self._num_bytes > MAX_MESSAGE_BYTES:
            raise MalformedFrame(f"a message of over {MAX_MESSAGE_BYTES} bytes")

        self._parts.append(part)
        if kind == MORE:
            return None

        message = b"".join(self._parts)
        self._parts = []
        self._num_bytes = 0
        return message
