"""Frames: every cut of the byte stream gives the same messages; a broken peer is an error."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.pool.frames import (
    LAST,
    MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    FrameBuffer,
    FrameJoiner,
    MalformedFrame,
    split,
    with_length,
)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30)))
def test_messages_survive_any_cutting_of_the_stream(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(with_length(message) for message in messages)
    buffer = FrameBuffer()
    received: list[bytes] = []
    for cut in cuts:
        received += buffer.feed(stream[:cut])
        stream = stream[cut:]
    received += buffer.feed(stream)

    assert received == messages


def test_an_announced_length_over_the_limit_is_refused_before_it_is_buffered() -> None:
    announced = (MAX_MESSAGE_BYTES + 1).to_bytes(4, "little")

    with pytest.raises(MalformedFrame, match=str(MAX_MESSAGE_BYTES + 1)):
        FrameBuffer().feed(announced)


@pytest.mark.parametrize(
    "num_bytes",
    # either side of one and of two frames
    [0, 1, MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 2 * MAX_FRAME_BYTES],
)
def test_a_long_message_travels_in_frames_under_the_limit(num_bytes: int) -> None:
    message = bytes(range(251)) * (num_bytes // 251 + 1)
    message = message[:num_bytes]
    joiner = FrameJoiner()

    frames = list(split(message))
    *before, joined = [joiner.add(frame) for frame in frames]

    assert joined == message
    assert before == [None] * (max(num_bytes - 1, 0) // MAX_FRAME_BYTES)
    assert all(len(frame) <= 1 + 2**20 for frame in frames)


def test_messages_after_each_other_do_not_mix() -> None:
    joiner = FrameJoiner()

    assert joiner.add(b"\x01ab") is None
    assert joiner.add(b"\x00c") == b"abc"
    assert joiner.add(b"\x00d") == b"d"


def test_a_message_that_never_ends_is_refused() -> None:
    joiner = FrameJoiner()
    part = b"\x01" + bytes(MAX_FRAME_BYTES)

    with pytest.raises(MalformedFrame):
        for _ in range(MAX_MESSAGE_BYTES // MAX_FRAME_BYTES + 1):
            joiner.add(part)


@pytest.mark.parametrize("frame", [b"", b"\x02abc"])
def test_a_frame_of_unknown_kind_is_refused(frame: bytes) -> None:
    assert not frame.startswith(LAST)

    with pytest.raises(MalformedFrame):
        FrameJoiner().add(frame)
