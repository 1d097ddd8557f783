"""Server-sent events, in whatever pieces they arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from tenantry._sse import ServerSentEvent, SSEDecoder

STREAM = (
    b"\xef\xbb\xbf: keep-alive\n\n"
    b"data: one\n\n"
    b"event: error\r\ndata: two\r\ndata:three\r\n\r\n"
    b"id: 7\rretry: 10\rdata: four \xe2\x80\xa8 \xc3\xa9\r\r"
    b"data\n\n"
    b"event: lost\n\n"
    b"data:  five\n\n"
    b"data: cut off"
)

# what the HTML standard's parsing rules make of it
EVENTS = [
    ServerSentEvent("message", b"one"),
    ServerSentEvent("error", b"two\nthree"),
    ServerSentEvent("message", "four \u2028 é".encode()),
    ServerSentEvent("message", b""),
    ServerSentEvent("message", b" five"),
]


def test_events_are_split_at_blank_lines() -> None:
    assert SSEDecoder().feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_pieces_do_not_matter(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    decoder = SSEDecoder()
    pieces = [STREAM[begin:end] for begin, end in itertools.pairwise(bounds)]
    assert [event for piece in pieces for event in decoder.feed(piece)] == EVENTS


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_an_event_is_out_as_soon_as_its_blank_line_is_in(line_end: bytes) -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: one" + line_end) == []
    assert decoder.feed(line_end) == [ServerSentEvent("message", b"one")]
