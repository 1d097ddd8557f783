from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from support.ledgers import a_record, some_facts
from tenantry_runtime.tenancy.ledger.frames import (
    MAGIC,
    Closed,
    End,
    Frame,
    Opened,
    Served,
    encode,
    read_segment,
)

FRAMES: list[Frame] = [
    Opened(number=1, slot=4, facts=some_facts("r-1")),
    Opened(number=2, slot=3, facts=some_facts("r-2")),
    Served(number=1, revision="f" * 64, formats="prefill=bf16/bf16 decode=fp8/fp8"),
    Closed(number=2, record=None),
    Closed(number=1, record=a_record("r-1")),
]
ENCODED = [encode(frame) for frame in FRAMES]
SEGMENT = MAGIC + b"".join(ENCODED)
STARTS = [len(MAGIC) + sum(map(len, ENCODED[:count])) for count in range(len(ENCODED) + 1)]


def test_frames_are_read_as_they_were_written() -> None:
    assert read_segment(SEGMENT) == (FRAMES, End.WHOLE, len(SEGMENT))


def test_a_segment_that_is_cut_anywhere_has_all_frames_before_the_cut() -> None:
    for length in range(len(SEGMENT)):
        read = read_segment(SEGMENT[:length])

        whole = [start for start in STARTS if start <= length]
        assert read.frames == FRAMES[: max(0, len(whole) - 1)]
        assert read.end is (End.WHOLE if length in STARTS else End.TORN), length


@pytest.mark.parametrize("num_zeros", [1, 7, 8, 9, 4096])
def test_a_tail_of_zeros_is_no_frame(num_zeros: int) -> None:
    read = read_segment(SEGMENT + bytes(num_zeros))

    assert (read.frames, read.end) == (FRAMES, End.TORN)
    assert read.num_good_bytes == len(SEGMENT)


def test_a_segment_that_was_only_made_has_no_frames() -> None:
    for content in (b"", MAGIC[:3], bytes(8), MAGIC):
        read = read_segment(content)
        assert read.frames == []
        assert read.end is not End.DAMAGED


@given(st.integers(0, len(SEGMENT) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_never_read(position: int, bit: int) -> None:
    content = bytearray(SEGMENT)
    content[position] ^= 1 << bit

    read = read_segment(bytes(content))

    # all before the frame that has it, and nothing of it
    before = len([start for start in STARTS[1:] if start <= position])
    assert read.frames == FRAMES[: before if position >= len(MAGIC) else 0]
    # behind the last frame nothing says that it was not cut short
    is_last = position >= STARTS[-2]
    assert read.end is (End.TORN if is_last else End.DAMAGED)


def test_a_frame_of_a_kind_that_is_not_known_is_damage() -> None:
    from tenantry_runtime.tenancy.ledger import frames

    unknown = b"\x92\x63\x01"  # [99, 1]
    framed = frames._HEAD.pack(len(unknown), frames._checksum(unknown)) + unknown

    read = read_segment(MAGIC + ENCODED[0] + framed + ENCODED[1])

    assert (read.frames, read.end) == (FRAMES[:1], End.DAMAGED)


def test_a_file_of_something_else_is_damage() -> None:
    assert read_segment(b"SQLite format 3\0").end is End.DAMAGED
