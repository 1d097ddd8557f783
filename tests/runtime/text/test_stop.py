from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from support.text import Answer
from tenantry_runtime.core import ContentDelta, OutputEvent, ReasoningDelta, ToolCallStart
from tenantry_runtime.text import StopStrings

letters = st.text(st.sampled_from("abc"), max_size=12)


def shown(stop: list[str], pieces: list[str]) -> tuple[str, bool]:
    """Filter an answer given in pieces."""
    filtered = StopStrings(stop)
    events: list[OutputEvent] = []
    is_hit = False
    for piece in pieces:
        more, is_hit = filtered.feed([ContentDelta(piece)])
        events += more
    if not is_hit:
        events += filtered.flush()
    return Answer(events, 0).content, is_hit


@given(text=letters, stop=st.text(st.sampled_from("abc"), min_size=1, max_size=4))
def test_the_answer_ends_before_the_first_stop_string(text: str, stop: str) -> None:
    before = re.split(re.escape(stop), text, maxsplit=1)[0]
    assert shown([stop], list(text)) == (before, stop in text)


@given(
    pieces=st.lists(letters),
    stop=st.lists(st.text(st.sampled_from("abc"), min_size=1, max_size=4), max_size=3),
)
def test_how_the_text_is_split_changes_nothing(pieces: list[str], stop: list[str]) -> None:
    text = "".join(pieces)
    assert shown(stop, pieces) == shown(stop, [text]) == shown(stop, list(text))


def test_what_could_become_a_stop_string_is_held_back() -> None:
    stop = StopStrings(["END"])
    assert stop.feed([ContentDelta("the E")]) == ([ContentDelta("the ")], False)
    assert stop.feed([ContentDelta("N")]) == ([], False)
    assert stop.feed([ContentDelta("E")]) == ([ContentDelta("EN")], False)
    assert stop.flush() == [ContentDelta("E")]
    assert stop.flush() == []


def test_nothing_follows_a_stop_string() -> None:
    stop = StopStrings(["END"])
    events: list[OutputEvent] = [
        ContentDelta("a END b"),
        ContentDelta("c"),
        ToolCallStart(0, "x", "f"),
    ]
    assert stop.feed(events) == ([ContentDelta("a ")], True)
    assert stop.feed([ContentDelta("d")]) == ([], True)
    assert stop.flush() == []


def test_other_output_passes_and_ends_what_was_held() -> None:
    stop = StopStrings(["END"])
    thought = ReasoningDelta("END")
    assert stop.feed([thought]) == ([thought], False)
    call = ToolCallStart(0, "x", "f")
    events: list[OutputEvent] = [ContentDelta("EN"), call, ContentDelta("D")]
    assert stop.feed(events) == ([ContentDelta("EN"), call, ContentDelta("D")], False)


def test_without_stop_strings_everything_passes() -> None:
    events: list[OutputEvent] = [ContentDelta("a"), ReasoningDelta("b")]
    assert StopStrings([]).feed(events) == (events, False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty stop string"):
        StopStrings(["a", ""])
