"""From tokens to events: finish reasons, stop strings, usage."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, strategies as st

from support.plain_text import ARGUMENTS, CALL, CALL_END, END, THINK_END, PlainMachine
from tenantry_runtime.core import (
    ChosenLogprob,
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    LogprobsDelta,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tenantry_runtime.edge.answer import Answer
from tenantry_runtime.pool.messages import SequenceTokens, Timings
from tenantry_runtime.text import OutputState

A_CALL = f"{CALL}f{ARGUMENTS}{{}}{CALL_END}"
TIMINGS = Timings(1, 2, 3, 4, 5)


def tokens(text: str, finish: FinishReason | None = None, cached_tokens: int = 0) -> SequenceTokens:
    return SequenceTokens(
        request_id="r",
        token_ids=tuple(map(ord, text)),
        finish=finish,
        cached_tokens=cached_tokens,
        timings=TIMINGS if finish else None,
    )


def with_logprobs(tokens: SequenceTokens) -> SequenceTokens:
    chars = "".join(map(chr, tokens.token_ids))
    return msgspec.structs.replace(tokens, logprobs=told(chars))


def an_answer(*stop: str, initial: OutputState = OutputState.CONTENT) -> Answer:
    return Answer(PlainMachine(initial), stop=stop, prompt_tokens=10)


def content(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        (f"hello{END}", FinishReason.STOP, FinishReason.STOP),
        ("hello", FinishReason.LENGTH, FinishReason.LENGTH),
        (f"hello{A_CALL}{END}", FinishReason.STOP, FinishReason.TOOL_CALLS),
        (f"hello{A_CALL}", FinishReason.LENGTH, FinishReason.LENGTH),
        # a call that is cut off is no call
        (f"hello{CALL}f{ARGUMENTS}{{{END}", FinishReason.STOP, FinishReason.STOP),
    ],
    ids=["stop", "length", "call", "length beats call", "cut call"],
)
def test_an_answer_ends_for_the_reason_that_counts(
    text: str, finish: FinishReason, reason: FinishReason
) -> None:
    answer = an_answer()

    events = answer.take(tokens(text, finish))

    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason == answer.reason == reason
    assert answer.timings == TIMINGS


def test_events_come_in_the_order_of_the_tokens() -> None:
    answer = an_answer(initial=OutputState.REASONING)

    events = answer.take(tokens(f"a{THINK_END}b{A_CALL}{END}", FinishReason.STOP))

    assert events[:-1] == [
        ReasoningDelta("a"),
        ContentDelta("b"),
        ToolCallStart(0, "call_0", "f"),
        ToolCallArguments(0, "{"),
        ToolCallArguments(0, "}"),
    ]


def test_usage_counts_every_token_and_what_the_prefill_had() -> None:
    answer = an_answer(initial=OutputState.REASONING)
    answer.take(tokens("ab", cached_tokens=6))
    answer.take(tokens(f"{THINK_END}c"))

    [finish] = answer.take(tokens(END, FinishReason.STOP))

    assert finish == Finish(
        reason=FinishReason.STOP,
        usage=Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=6, reasoning_tokens=3),
    )


def test_a_stop_string_ends_the_answer_before_it() -> None:
    answer = an_answer("ll")

    events = answer.take(tokens("hello"))

    assert content(events) == "he"
    assert answer.reason is FinishReason.STOP
    assert events[-1] == Finish(reason=FinishReason.STOP, usage=answer.usage)
    assert answer.usage.completion_tokens == 5


def test_a_stop_string_across_steps_is_never_shown() -> None:
    answer = an_answer("END")

    assert content(answer.take(tokens("say E"))) == "say "
    assert answer.take(tokens("N")) == []
    assert content(answer.take(tokens("D of it"))) == ""
    assert answer.reason is FinishReason.STOP


def told(text: str) -> tuple[ChosenLogprob, ...]:
    return tuple(ChosenLogprob(TokenLogprob(ord(char), -1.0 * n)) for n, char in enumerate(text))


def test_log_probabilities_follow_what_their_tokens_say() -> None:
    answer = an_answer()

    first = answer.take(with_logprobs(tokens("ab")))
    last = answer.take(with_logprobs(tokens(f"c{END}", FinishReason.STOP)))

    assert first == [ContentDelta("a"), ContentDelta("b"), LogprobsDelta(told("ab"))]
    assert last[:-1] == [ContentDelta("c"), LogprobsDelta(told(f"c{END}"))]
    assert isinstance(last[-1], Finish)


def test_log_probabilities_do_not_wait_for_text_that_is_held_back() -> None:
    answer = an_answer("END")

    assert answer.take(with_logprobs(tokens("E"))) == [LogprobsDelta(told("E"))]
    after = answer.take(with_logprobs(tokens("x")))
    assert after == [ContentDelta("Ex"), LogprobsDelta(told("x"))]


@given(st.text("abc", max_size=30), st.text("abc", min_size=1, max_size=3), st.data())
def test_log_probabilities_never_tell_of_a_stop_string(
    text: str, stop: str, data: st.DataObject
) -> None:
    answer = an_answer(stop)
    told_of, shown, rest = "", "", text
    while answer.reason is None:
        step = rest[: data.draw(st.integers(1, 5))]
        rest = rest[len(step) :]
        finish = None if rest else FinishReason.LENGTH
        events = answer.take(with_logprobs(tokens(step, finish)))
        shown += content(events)
        for event in events:
            if isinstance(event, LogprobsDelta):
                told_of += "".join(chr(entry.chosen.token_id) for entry in event.entries)
    before, found, _ = text.partition(stop)
    assert shown == before
    # all but the last of its characters, each a token
    assert told_of == before + found[:-1]


def test_what_only_began_like_a_stop_string_is_shown_at_the_end() -> None:
    answer = an_answer("END")

    assert content(answer.take(tokens("EN"))) == ""
    assert content(answer.take(tokens("", FinishReason.LENGTH))) == "EN"
    assert answer.reason is FinishReason.LENGTH


def test_stop_strings_are_not_looked_for_in_reasoning() -> None:
    answer = an_answer("x", initial=OutputState.REASONING)

    assert answer.take(tokens("x")) == [ReasoningDelta("x")]
    assert answer.reason is None


def test_a_stop_string_beats_length() -> None:
    answer = an_answer("o")

    answer.take(tokens("hello", FinishReason.LENGTH))

    assert answer.reason is FinishReason.STOP


@given(st.text("abEND", max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_the_steps_do_not_matter(text: str, cuts: list[int]) -> None:
    def run(pieces: list[str]) -> tuple[str, FinishReason | None]:
        answer, shown = an_answer("END", "ba"), ""
        for index, piece in enumerate(pieces):
            finish = FinishReason.LENGTH if index == len(pieces) - 1 else None
            shown += content(answer.take(tokens(piece, finish)))
            if answer.reason is not None:
                break
        return shown, answer.reason

    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]

    assert run(pieces) == run([text])
