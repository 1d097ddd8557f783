"""What two nodes say to each other on a Push stream, one frame per gRPC message.

| from | first byte | then | says |
|---|---|---|---|
| pusher | OPEN | PushOpen | the first frame: which hand-off this is, and from whom |
| pusher | READY | uint32 | so many pages, in all, are there to be pushed |
| pusher | PAGE | uint32, uint16 *n*, PageHeader of *n* bytes, bytes | as READY; then a page and its first bytes, against one credit |
| pusher | MORE | bytes | the page's next bytes |
| pusher | END | HandoffEnd | nothing is left to push |
| receiver | CREDIT | uint32 | so many pages, in all, may be pushed; the first, of 0, accepts the hand-off |
| receiver | OUTCOME | PushOutcome | the last frame: admitted, or why not |

Structs are MessagePack, numbers little-endian. A frame has at most `MAX_FRAME_BYTES` and its first
byte. Credit is given for pages that are there only, so that a prompt which is still being computed
holds no memory of the receiver's. A page's bytes are never looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import msgspec

from .frames import MAX_FRAME_BYTES, MalformedFrame
from .messages import HandoffEnd, PageHeader, PushOpen

_COUNT_BYTES = 4
_LENGTH_BYTES = 2


class Kind(IntEnum):
    """The first byte of a frame."""

    OPEN = 1
    READY = 2
    PAGE = 3
    MORE = 4
    END = 5
    CREDIT = 6
    OUTCOME = 7


class PushOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a hand-off ended at the receiver."""

    problem: str | None = None
    """None: the sequence is admitted."""


class Ready(NamedTuple):
    num_ready: int


class PageBegins(NamedTuple):
    num_ready: int
    header: PageHeader
    part: memoryview


class PageGoesOn(NamedTuple):
    part: memoryview


class Credit(NamedTuple):
    num_pages: int


PusherFrame: TypeAlias = PushOpen | Ready | PageBegins | PageGoesOn | HandoffEnd
ReceiverFrame: TypeAlias = Credit | PushOutcome

_encode = msgspec.msgpack.Encoder().encode
_decode_open = msgspec.msgpack.Decoder(PushOpen).decode
_decode_header = msgspec.msgpack.Decoder(PageHeader).decode
_decode_end = msgspec.msgpack.Decoder(HandoffEnd).decode
_decode_outcome = msgspec.msgpack.Decoder(PushOutcome).decode


def open_frame(opening: PushOpen) -> bytes:
    return _struct_frame(Kind.OPEN, opening)


def ready_frame(num_ready: int) -> bytes:
    return bytes([Kind.READY]) + num_ready.to_bytes(_COUNT_BYTES, "little")


def end_frame(end: HandoffEnd) -> bytes:
    return _struct_frame(Kind.END, end)


def credit_frame(num_pages: int) -> bytes:
    return bytes([Kind.CREDIT]) + num_pages.to_bytes(_COUNT_BYTES, "little")


def outcome_frame(problem: str | None) -> bytes:
    return _struct_frame(Kind.OUTCOME, PushOutcome(problem=problem))


def page_frames(num_ready: int, header: PageHeader, page: memoryview) -> Iterator[bytes]:
    """Yield a page's frames; each is a copy of its part of `page`."""
    packed = _encode(header)
    begin = b"".join(
        (
            bytes([Kind.PAGE]),
            num_ready.to_bytes(_COUNT_BYTES, "little"),
            len(packed).to_bytes(_LENGTH_BYTES, "little"),
            packed,
        )
    )
    cut = min(len(page), MAX_FRAME_BYTES + 1 - len(begin))
    yield b"".join((begin, page[:cut]))
    for start in range(cut, len(page), MAX_FRAME_BYTES):
        yield b"".join((bytes([Kind.MORE]), page[start : start + MAX_FRAME_BYTES]))


def read_pusher_frame(frame: bytes) -> PusherFrame:
    """Raise `MalformedFrame` for what no pusher says."""
    body = memoryview(frame)[1:]
    try:
        match Kind(frame[0]) if frame else None:
            case Kind.OPEN:
                return _decode_open(body)
            case Kind.READY:
                return Ready(_count(body))
            case Kind.PAGE:
                return _page_begins(body)
            case Kind.MORE:
                return PageGoesOn(body)
            case Kind.END:
                return _decode_end(body)
            case kind:
                raise MalformedFrame(f"a pusher's frame of kind {kind}")
    except MalformedFrame:
        raise
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        # a bad struct, or no kind at all
        raise MalformedFrame(str(error)) from error


def read_receiver_frame(frame: bytes) -> ReceiverFrame:
    """Raise `MalformedFrame` for what no receiver says."""
    body = memoryview(frame)[1:]
    try:
        match Kind(frame[0]) if frame else None:
            case Kind.CREDIT:
                return Credit(_count(body))
            case Kind.OUTCOME:
                return _decode_outcome(body)
            case kind:
                raise MalformedFrame(f"a receiver's frame of kind {kind}")
    except MalformedFrame:
        raise
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        # a bad struct, or no kind at all
        raise MalformedFrame(str(error)) from error


def _struct_frame(kind: Kind, struct: msgspec.Struct) -> bytes:
    frame = bytes([kind]) + _encode(struct)
    assert len(frame) <= MAX_FRAME_BYTES, "a context of some million tokens"
    return frame


def _count(body: memoryview) -> int:
    if len(body) != _COUNT_BYTES:
        raise MalformedFrame(f"a number of {len(body)} bytes")
    return int.from_bytes(body, "little")


def _page_begins(body: memoryview) -> PageBegins:
    start = _COUNT_BYTES + _LENGTH_BYTES
    if len(body) < start:
        raise MalformedFrame("a page that ends before its header")
    num_ready = int.from_bytes(body[:_COUNT_BYTES], "little")
    part_start = start + int.from_bytes(body[_COUNT_BYTES:start], "little")
    if part_start > len(body):
        raise MalformedFrame("a page that ends within its header")
    header = _decode_header(body[start:part_start])
    return PageBegins(num_ready, header, body[part_start:])
