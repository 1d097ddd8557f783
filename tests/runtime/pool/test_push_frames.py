"""Frames of a Push stream: what goes in comes out, and nothing else is taken for a frame."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from support.page_loop import an_end
from support.page_members import PREFILL
from tenantry_runtime.pool.frames import MAX_FRAME_BYTES, MalformedFrame
from tenantry_runtime.pool.messages import HandoffTarget, PageHeader, PushOpen
from tenantry_runtime.pool.push_frames import (
    Credit,
    Kind,
    PageGoesOn,
    PagesBegin,
    PushOutcome,
    Ready,
    credit_frame,
    end_frame,
    num_together,
    open_frame,
    outcome_frame,
    page_frames,
    read_pusher_frame,
    read_receiver_frame,
    ready_frame,
)

TARGET = HandoffTarget(
    model="m", incarnation=1, handoff=2, cache_format="fp8", first_page=0, pages=b""
)


def a_header(num_bytes: int) -> PageHeader:
    return PageHeader(2, 3, 4, -(1 << 63), 64, (1 << 63) - 1, num_bytes)


@pytest.mark.parametrize("num_bytes", [1, 1000, MAX_FRAME_BYTES - 50, MAX_FRAME_BYTES, 5 << 20])
def test_a_page_survives_being_cut(num_bytes: int) -> None:
    page = bytes(range(251)) * (num_bytes // 251 + 1)
    page = page[:num_bytes]
    header = a_header(num_bytes)

    frames = list(page_frames(7, [header], [memoryview(page)]))

    assert all(len(frame) <= MAX_FRAME_BYTES + 1 for frame in frames)
    first, *more = [read_pusher_frame(frame) for frame in frames]
    assert isinstance(first, PagesBegin)
    assert (first.num_ready, first.headers) == (7, [header])
    parts = [bytes(first.part)]
    for frame in more:
        assert isinstance(frame, PageGoesOn)
        parts.append(bytes(frame.part))
    assert b"".join(parts) == page


def test_small_pages_go_together_as_many_as_a_frame_holds() -> None:
    num_bytes = 300_000
    headers = [a_header(num_bytes)] * 5
    pages = [memoryview(bytes([n]) * num_bytes) for n in range(5)]

    assert num_together(headers) == 3
    (frame,) = page_frames(9, headers[:3], pages[:3])
    begun = read_pusher_frame(frame)

    assert len(frame) <= MAX_FRAME_BYTES + 1
    assert isinstance(begun, PagesBegin)
    assert (begun.num_ready, begun.headers) == (9, headers[:3])
    assert begun.part == b"".join(pages[:3])


@given(sizes=st.lists(st.integers(1, MAX_FRAME_BYTES + 5), min_size=1, max_size=70))
def test_pages_that_go_together_fit_into_one_frame_unless_it_is_a_single_one(
    sizes: list[int],
) -> None:
    headers = [a_header(size) for size in sizes]
    num_pages = num_together(headers)

    assert 1 <= num_pages <= len(sizes)
    if num_pages > 1:
        zeros = memoryview(bytes(MAX_FRAME_BYTES))
        views = [zeros[:size] for size in sizes[:num_pages]]
        assert len(list(page_frames(1 << 31, headers[:num_pages], views))) == 1


def test_the_other_frames_say_what_they_were_made_of() -> None:
    opening = PushOpen(target=TARGET, source=PREFILL)
    end = an_end(2, 3)

    assert read_pusher_frame(open_frame(opening)) == opening
    assert read_pusher_frame(ready_frame(9)) == Ready(9)
    assert read_pusher_frame(end_frame(end)) == end
    assert read_receiver_frame(credit_frame(5)) == Credit(5)
    assert read_receiver_frame(outcome_frame(None)) == PushOutcome(problem=None)
    assert read_receiver_frame(outcome_frame("no")) == PushOutcome(problem="no")


@pytest.mark.parametrize("read", [read_pusher_frame, read_receiver_frame])
@given(frame=st.binary(max_size=40))
def test_garbage_is_refused_or_is_a_frame(read: Any, frame: bytes) -> None:
    try:
        read(frame)
    except MalformedFrame:
        return
    assert frame[:1] in {bytes([kind]) for kind in Kind}


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        bytes([Kind.PAGES]),
        bytes([Kind.PAGES]) + b"\0\0\0\0\xff\xff",
        bytes([Kind.READY]) + b"\0",
        bytes([Kind.CREDIT]) + b"\0\0\0\0",
    ],
    ids=["empty", "zero", "cut before the header", "cut within the header", "short", "not its own"],
)
def test_a_frame_that_is_cut_or_of_the_other_side_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_pusher_frame(frame)
