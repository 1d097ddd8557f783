"""A journal's segment: frames that are appended, and what a reader makes of the file.

| bytes | of a segment |
|---|---|
| 8 | `MAGIC` |
| the rest | frames |

| bytes | of a frame |
|---|---|
| 4 | length of the payload, little-endian |
| 4 | CRC-32 of the length's bytes and the payload, little-endian |
| length | payload: a `Frame` as MessagePack |

The CRC covers the length, so that a tail of zeros, as a disk without power may leave it, is no frame.
A segment ends where it breaks. If nothing behind the break reads as a frame, it is the tail of a
write that a crash has cut short, of which nobody was ever told; else the segment is damaged.
"""

from __future__ import annotations

import struct
import zlib
from enum import Enum
from typing import NamedTuple, TypeAlias

import msgspec

from .record import RequestFacts, UsageRecord

MAGIC = b"TJOURNL1"

MAX_FRAME_BYTES = 1 << 16
"""Far above the longest record: identifiers are bounded, and there is no text in it."""

_HEAD = struct.Struct("<II")


class Opened(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=1, gc=False):
    """A request is about to be submitted to a node."""

    number: int
    """Of the request in this journal, from 1."""
    slot: int
    """Where what it has delivered is counted (`slots`)."""
    facts: RequestFacts


class Served(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=2, gc=False):
    """What the request runs on; the last one counts."""

    number: int
    revision: str
    formats: str


class Closed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=3, gc=False):
    """The request has ended."""

    number: int
    record: UsageRecord | None
    """None: nothing ran, and there is no record."""


Frame: TypeAlias = Opened | Served | Closed


class End(Enum):
    """How a segment ends."""

    WHOLE = "whole"
    """With a frame."""
    TORN = "torn"
    """With a piece of one."""
    DAMAGED = "damaged"
    """In the middle: there are frames behind a break, or of a kind that is not known."""


class Segment(NamedTuple):
    """What can be read of a segment."""

    frames: list[Frame]
    end: End
    num_good_bytes: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Return a frame as it is appended."""
    payload = _encoder.encode(frame)
    assert len(payload) <= MAX_FRAME_BYTES
    return _HEAD.pack(len(payload), _checksum(payload)) + payload


def read_segment(content: bytes) -> Segment:
    """Read frames up to the segment's end, or to where it breaks."""
    frames: list[Frame] = []
    if content[: len(MAGIC)] != MAGIC:
        is_torn = MAGIC.startswith(content) or not any(content)
        return Segment(frames, End.TORN if is_torn else End.DAMAGED, 0)
    offset = len(MAGIC)
    while offset < len(content):
        payload = _payload_at(content, offset)
        if payload is None:
            return Segment(frames, _kind_of_break(content, offset), offset)
        try:
            frames.append(_decoder.decode(payload))
        except msgspec.DecodeError:
            return Segment(frames, End.DAMAGED, offset)
        offset += _HEAD.size + len(payload)
    return Segment(frames, End.WHOLE, offset)


def _payload_at(content: bytes, offset: int) -> bytes | None:
    start = offset + _HEAD.size
    if start > len(content):
        return None
    length, checksum = _HEAD.unpack_from(content, offset)
    if not 0 < length <= min(MAX_FRAME_BYTES, len(content) - start):
        return None
    payload = content[start : start + length]
    return payload if _checksum(payload) == checksum else None


def _kind_of_break(content: bytes, offset: int) -> End:
    behind = range(offset + 1, len(content) - _HEAD.size)
    if any(_payload_at(content, later) is not None for later in behind):
        return End.DAMAGED
    return End.TORN


def _checksum(payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(len(payload).to_bytes(4, "little")))
