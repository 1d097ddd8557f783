"""What two nodes say to each other on a Push stream, one frame per gRPC message.

| from | first byte | then | says |
|---|---|---|---|
| pusher | OPEN | PushOpen | the first frame: which hand-off this is, and from whom |
| pusher | READY | uint32 | so many pages, in all, are there to be pushed |
| pusher | PAGES | uint32, uint16 *n*, list of PageHeader of *n* bytes, bytes | as READY; then pages, one after the other, against a credit each; of the last perhaps its first bytes only |
| pusher | MORE | bytes | the last page's next bytes |
| pusher | LENT | uint32, uint16 *n*, list of PageHeader of *n* bytes, uint16 each | as READY; then pages, against a credit each, by the slots of the lent memory that they are in |
| pusher | END | HandoffEnd | nothing is left to push |
| receiver | CREDIT | uint32, perhaps uint32 | so many pages, in all, may be pushed; so many lent ones, in all, are read. The first, of 0, accepts the hand-off and, with a second number, the lent memory |
| receiver | OUTCOME | PushOutcome | the last frame: admitted, or why not |

Structs are MessagePack, numbers little-endian. A frame has at most `MAX_FRAME_BYTES` and its first
byte. Credit is given for pages that are there only, so that a prompt which is still being computed
holds no memory of the receiver's. A page's bytes are never looked at here. What a frame costs at both
ends is its own more than its bytes', so that small pages that are ready go together. Lent memory is of
a pusher on the same machine (`lent_pages`); a slot is the pusher's again when it is read, or when the
stream is over: what a receiver reads later is of no hand-off, whatever it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec

from .frames import MAX_FRAME_BYTES, MalformedFrame
from .messages import HandoffEnd, PageHeader, PushOpen

_COUNT_BYTES = 4
_LENGTH_BYTES = 2
_SLOT_BYTES = 2
_MAX_HEADER_BYTES = 1 + 7 * 9
"""Of a header as MessagePack: seven integers of up to nine bytes each. What begins a list of them is
within what a frame's first byte leaves."""


MAX_LENT = 64
"""Pages of a LENT frame, whose headers are far from what their length may say: as many as there are slots."""

MAX_LENT_BYTES = 8 << 20
"""Of the pages of a LENT frame, unless it is a single one: a receiver reads them in one go, in a
millisecond or two, and has edges to talk to."""


class Kind(IntEnum):
    """The first byte of a frame."""

    OPEN = 1
    READY = 2
    PAGES = 3
    MORE = 4
    END = 5
    CREDIT = 6
    OUTCOME = 7
    LENT = 8


class PushOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a hand-off ended at the receiver."""

    problem: str | None = None
    """None: the sequence is admitted."""


class Ready(NamedTuple):
    num_ready: int


class PagesBegin(NamedTuple):
    num_ready: int
    headers: list[PageHeader]
    part: memoryview
    """All bytes of all pages, or of the last one its first."""


class PageGoesOn(NamedTuple):
    part: memoryview


class PagesLent(NamedTuple):
    num_ready: int
    headers: list[PageHeader]
    slots: tuple[int, ...]


class Credit(NamedTuple):
    num_pages: int
    num_read: int | None = None
    """None: the receiver does not read lent memory."""


PusherFrame: TypeAlias = PushOpen | Ready | PagesBegin | PageGoesOn | PagesLent | HandoffEnd
ReceiverFrame: TypeAlias = Credit | PushOutcome

_encode = msgspec.msgpack.Encoder().encode
_decode_open = msgspec.msgpack.Decoder(PushOpen).decode
_decode_headers = msgspec.msgpack.Decoder(list[PageHeader]).decode
_decode_end = msgspec.msgpack.Decoder(HandoffEnd).decode
_decode_outcome = msgspec.msgpack.Decoder(PushOutcome).decode


def open_frame(opening: PushOpen) -> bytes:
    return _struct_frame(Kind.OPEN, opening)


def ready_frame(num_ready: int) -> bytes:
    return bytes([Kind.READY]) + num_ready.to_bytes(_COUNT_BYTES, "little")


def end_frame(end: HandoffEnd) -> bytes:
    return _struct_frame(Kind.END, end)


def credit_frame(num_pages: int, num_read: int | None = None) -> bytes:
    numbers = (num_pages,) if num_read is None else (num_pages, num_read)
    return bytes([Kind.CREDIT]) + b"".join(n.to_bytes(_COUNT_BYTES, "little") for n in numbers)


def outcome_frame(problem: str | None) -> bytes:
    return _struct_frame(Kind.OUTCOME, PushOutcome(problem=problem))


def num_together(pages: Iterable[PageHeader]) -> int:
    """Return how many of the first of these pages, at least one, go into one frame."""
    sizes = (_MAX_HEADER_BYTES + header.num_bytes for header in pages)
    return _num_within(sizes, MAX_FRAME_BYTES - _COUNT_BYTES - _LENGTH_BYTES)


def num_lent_together(pages: Iterable[PageHeader]) -> int:
    """Return how many of the first of these pages, at least one, go into one LENT frame."""
    return _num_within((header.num_bytes for header in islice(pages, MAX_LENT)), MAX_LENT_BYTES)


def page_frames(
    num_ready: int, headers: Sequence[PageHeader], pages: Sequence[memoryview]
) -> Iterator[bytes]:
    """Yield the frames of pages that go together (`num_together`); each is a copy of its part of them."""
    begin = _pages_frame(Kind.PAGES, num_ready, headers)
    *whole, last = pages
    num_left = MAX_FRAME_BYTES + 1 - len(begin) - sum(page.nbytes for page in whole)
    cut = min(len(last), num_left)
    yield b"".join((begin, *whole, last[:cut]))
    for start in range(cut, len(last), MAX_FRAME_BYTES):
        yield b"".join((bytes([Kind.MORE]), last[start : start + MAX_FRAME_BYTES]))


def lent_frame(num_ready: int, headers: Sequence[PageHeader], slots: Sequence[int]) -> bytes:
    """Return the frame of pages that go together (`num_lent_together`), in slots of the lent memory."""
    return _pages_frame(Kind.LENT, num_ready, headers) + struct.pack(f"<{len(slots)}H", *slots)


def read_pusher_frame(frame: bytes) -> PusherFrame:
    """Raise `MalformedFrame` for what no pusher says."""
    body = memoryview(frame)[1:]
    try:
        match Kind(frame[0]) if frame else None:
            case Kind.OPEN:
                return _decode_open(body)
            case Kind.READY:
                return Ready(_count(body))
            case Kind.PAGES:
                return _pages_begin(body)
            case Kind.MORE:
                return PageGoesOn(body)
            case Kind.LENT:
                return _pages_lent(body)
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
                return _credit(body)
            case Kind.OUTCOME:
                return _decode_outcome(body)
            case kind:
                raise MalformedFrame(f"a receiver's frame of kind {kind}")
    except MalformedFrame:
        raise
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        # a bad struct, or no kind at all
        raise MalformedFrame(str(error)) from error


def _num_within(sizes: Iterable[int], max_bytes: int) -> int:
    """Return how many of the first sizes add up to no more; one is never too large."""
    num_sizes = total = 0
    for size in sizes:
        total += size
        if num_sizes and total > max_bytes:
            break
        num_sizes += 1
    return num_sizes


def _struct_frame(kind: Kind, struct: msgspec.Struct) -> bytes:
    frame = bytes([kind]) + _encode(struct)
    assert len(frame) <= MAX_FRAME_BYTES, "a context of some million tokens"
    return frame


def _pages_frame(kind: Kind, num_ready: int, headers: Sequence[PageHeader]) -> bytes:
    packed = _encode(headers)
    return b"".join(
        (
            bytes([kind]),
            num_ready.to_bytes(_COUNT_BYTES, "little"),
            len(packed).to_bytes(_LENGTH_BYTES, "little"),
            packed,
        )
    )


def _credit(body: memoryview) -> Credit:
    if len(body) == 2 * _COUNT_BYTES:
        return Credit(_count(body[:_COUNT_BYTES]), _count(body[_COUNT_BYTES:]))
    return Credit(_count(body))


def _count(body: memoryview) -> int:
    if len(body) != _COUNT_BYTES:
        raise MalformedFrame(f"a number of {len(body)} bytes")
    return int.from_bytes(body, "little")


def _pages_begin(body: memoryview) -> PagesBegin:
    return PagesBegin(*_headers_and_rest(body))


def _pages_lent(body: memoryview) -> PagesLent:
    num_ready, headers, rest = _headers_and_rest(body)
    if len(rest) != _SLOT_BYTES * len(headers):
        raise MalformedFrame(f"{len(headers)} lent pages and {len(rest)} bytes of slots")
    return PagesLent(num_ready, headers, struct.unpack(f"<{len(headers)}H", rest))


def _headers_and_rest(body: memoryview) -> tuple[int, list[PageHeader], memoryview]:
    start = _COUNT_BYTES + _LENGTH_BYTES
    if len(body) < start:
        raise MalformedFrame("pages that end before their headers")
    num_ready = int.from_bytes(body[:_COUNT_BYTES], "little")
    part_start = start + int.from_bytes(body[_COUNT_BYTES:start], "little")
    if part_start > len(body):
        raise MalformedFrame("pages that end within their headers")
    headers = _decode_headers(body[start:part_start])
    return num_ready, headers, body[part_start:]
