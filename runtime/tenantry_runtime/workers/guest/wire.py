"""Frames as bytes; `frames` has the table. Both ends of a stream use it."""

from __future__ import annotations

import re
import struct

import msgspec

from tenantry_runtime.workers.frames import MAX_FRAME_BYTES

HEADER = struct.Struct(">I")
"""Length of what follows."""

_ROOM = bytes(HEADER.size)
_encoder = msgspec.msgpack.Encoder()


class FrameTooLarge(ValueError):
    """A message does not fit in a frame."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        super().__init__(
            f"{num_bytes} bytes are too many for one message, which has at most {MAX_FRAME_BYTES}"
        )


def append_frame(out: bytearray, frame: object) -> None:
    """Append a message's bytes; if that fails nothing is appended.

    Raises `FrameTooLarge`; `TypeError` or `OverflowError` for a value that MessagePack does not know.
    """
    start = len(out)
    out += _ROOM
    try:
        _encoder.encode_into(frame, out, -1)
        num_bytes = len(out) - start - 4
        if num_bytes > MAX_FRAME_BYTES:
            raise FrameTooLarge(num_bytes)
    except BaseException:
        del out[start:]
        raise
    HEADER.pack_into(out, start, num_bytes)


_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def faulty_header(headers: list[tuple[str, str]]) -> tuple[str, str] | None:
    """Return a header that HTTP has no way to write, if there is one."""
    for header in headers:
        if _NAME.fullmatch(header[0]) is None or _VALUE.fullmatch(header[1]) is None:
            return header
    return None
