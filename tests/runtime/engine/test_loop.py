"""The step loop: messages, endings, refusals, and faults that stay with the requests they befell."""

from __future__ import annotations

import logging

import pytest

from support.engine import (
    MODEL,
    Transcript,
    a_submit,
    an_engine,
    assert_nothing_is_held,
    expected_answer,
    run_to_end,
)
from support.fake_decoder import FakeConfig, FakeDecoder
from tenantry_runtime.core import PAGE_TOKENS, FinishReason
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.messages import (
    Failed,
    NodeMessage,
    SequenceTokens,
    Step,
    Submit,
    Timings,
)


def only_step(messages: list[NodeMessage]) -> Step:
    (step,) = messages
    assert isinstance(step, Step)
    return step


def failure(loop: EngineLoop) -> Failed:
    (message,) = loop.turn()
    assert isinstance(message, Failed)
    return message


def test_one_step_carries_the_tokens_of_all_sequences() -> None:
    loop = an_engine()
    for name in ("a", "b", "c"):
        loop.submit(a_submit(name, stop_token_ids=()))
    assert [s.request_id for s in only_step(loop.turn()).sequences] == ["a", "b", "c"]
    assert [s.request_id for s in only_step(loop.turn()).sequences] == ["a", "b", "c"]


def test_steps_are_numbered_by_turn() -> None:
    loop = an_engine()
    loop.submit(a_submit("a", max_tokens=3, stop_token_ids=()))
    assert [only_step(loop.turn()).step for _ in range(3)] == [1, 2, 3]


def test_a_turn_without_the_last_piece_of_a_prompt_has_nothing_to_say() -> None:
    loop = an_engine(chunk_tokens=32, clock_s=lambda: 1000.0)
    loop.submit(a_submit("a", prompt=[3] * 70))
    assert loop.turn() == loop.turn() == []
    assert not loop.is_idle
    assert only_step(loop.turn()).sequences[0].request_id == "a"


def test_an_idle_loop_says_nothing() -> None:
    loop = an_engine()
    assert loop.is_idle
    assert loop.turn() == []


def test_a_stop_token_ends_an_answer_and_is_part_of_it() -> None:
    without_stop = expected_answer(a_submit(max_tokens=6, stop_token_ids=()))
    stop = without_stop[3]
    loop = an_engine()
    loop.submit(a_submit("a", max_tokens=6, stop_token_ids=(stop,)))
    transcript = run_to_end(loop)
    assert transcript.tokens["a"] == without_stop[: without_stop.index(stop) + 1]
    assert transcript.finish_reason("a") is FinishReason.STOP
    assert_nothing_is_held(loop)


def test_max_tokens_ends_an_answer() -> None:
    loop = an_engine()
    loop.submit(a_submit("a", max_tokens=5, stop_token_ids=()))
    transcript = run_to_end(loop)
    assert len(transcript.tokens["a"]) == 5
    assert transcript.finish_reason("a") is FinishReason.LENGTH


def test_a_stop_token_in_the_last_place_is_a_stop() -> None:
    answer = expected_answer(a_submit(max_tokens=4, stop_token_ids=()))
    place = answer.index(answer[-1]) + 1
    loop = an_engine()
    loop.submit(a_submit("a", max_tokens=place, stop_token_ids=(answer[-1],)))
    assert run_to_end(loop).finish_reason("a") is FinishReason.STOP


def test_an_answer_of_one_token_ends_with_its_prefill() -> None:
    loop = an_engine()
    loop.submit(a_submit("a", max_tokens=1))
    (tokens,) = only_step(loop.turn()).sequences
    assert tokens.finish is not None
    assert loop.is_idle
    assert_nothing_is_held(loop)


def test_an_answer_may_fill_the_context_to_its_last_token() -> None:
    loop = an_engine(num_pages=2)
    submit = a_submit("a", prompt=[3] * 100, max_tokens=28, stop_token_ids=())
    loop.submit(submit)
    assert run_to_end(loop).tokens["a"] == expected_answer(submit)


def test_timings_come_with_the_last_tokens() -> None:
    now_s = 1_700_000_000.0
    loop = an_engine(chunk_tokens=32, clock_s=lambda: now_s)
    loop.submit(a_submit("a", prompt=[3] * 70, max_tokens=3, stop_token_ids=()))
    told: list[SequenceTokens] = []
    while not loop.is_idle:
        now_s += 1
        for message in loop.turn():
            told.extend(message.sequences if isinstance(message, Step) else ())

    second = 10**9
    queued_ns = 1_700_000_000 * second
    assert [tokens.timings for tokens in told[:-1]] == [None, None]
    assert told[-1].timings == Timings(
        queued_ns=queued_ns,
        prefill_started_ns=queued_ns + 1 * second,
        first_token_ns=queued_ns + 3 * second,
        finished_ns=queued_ns + 5 * second,
        num_prefill_chunks=3,
        # 70 tokens, in the pool that both members share
        num_handoff_pages=2,
        num_steps=2,
        num_step_rows=2,
    )


def test_decoding_goes_on_in_the_turns_of_a_long_prefill() -> None:
    loop = an_engine(chunk_tokens=32)
    loop.submit(a_submit("quick", max_tokens=40, stop_token_ids=()))
    loop.turn()
    loop.submit(a_submit("long", prompt=[4] * 320, max_tokens=1))
    for _ in range(9):
        assert [s.request_id for s in only_step(loop.turn()).sequences] == ["quick"]
    assert [s.request_id for s in only_step(loop.turn()).sequences] == ["quick", "long"]


def test_models_take_turns_with_the_one_chunk_of_a_turn() -> None:
    loop = an_engine(models=(MODEL, "other-model"), chunk_tokens=32)
    for model in (MODEL, "other-model"):
        loop.submit(a_submit(model, model=model, prompt=[4] * 96, max_tokens=1))
    transcript = Transcript()
    finished_at: dict[str, int] = {}
    for turn in range(1, 7):
        transcript.read(loop.turn())
        for request_id in transcript.finished:
            finished_at.setdefault(request_id, turn)
    assert sorted(finished_at.values()) == [5, 6]


@pytest.mark.parametrize("num_turns", range(6))
def test_a_cancel_releases_everything_in_every_state(num_turns: int) -> None:
    loop = an_engine(chunk_tokens=32)
    loop.submit(a_submit("other", max_tokens=20, stop_token_ids=()))
    loop.submit(a_submit("a", prompt=[3] * 90, max_tokens=50, stop_token_ids=()))
    transcript = Transcript()
    for _ in range(num_turns):
        transcript.read(loop.turn())
    loop.cancel("a")
    num_told = len(transcript.tokens["a"])
    run_to_end(loop, transcript)
    assert len(transcript.tokens["a"]) == num_told
    assert set(transcript.finished) == {"other"}
    assert not transcript.failed
    assert_nothing_is_held(loop)


def test_a_cancel_of_an_unknown_request_is_ignored() -> None:
    loop = an_engine()
    loop.submit(a_submit("a"))
    loop.cancel("b")
    assert "a" in run_to_end(loop).finished


def test_a_full_queue_is_told_as_capacity() -> None:
    loop = an_engine(max_waiting=2)
    for name in ("a", "b", "c"):
        loop.submit(a_submit(name))
    transcript = run_to_end(loop)
    assert set(transcript.finished) == {"a", "b"}
    assert transcript.failed["c"].reason == "capacity"


def test_a_sequence_beyond_the_models_context_is_told_as_context() -> None:
    loop = an_engine(num_pages=200)
    limit = FakeConfig().context_tokens
    loop.submit(a_submit("a", prompt=[3] * 1000, max_tokens=limit - 999))
    refused = failure(loop)
    assert (refused.request_id, refused.reason) == ("a", "context")
    assert str(limit) in refused.message


def test_a_sequence_beyond_the_page_pool_is_told_as_context() -> None:
    loop = an_engine(num_pages=2)
    loop.submit(a_submit("a", prompt=[3] * 100, max_tokens=29))
    assert failure(loop).reason == "context"


@pytest.mark.parametrize(
    "submit",
    [
        a_submit(prompt=[]),
        a_submit(max_tokens=0),
        a_submit(prompt=[3, -1]),
        a_submit(prompt=[3, FakeConfig().vocab_size]),
        a_submit(model="no-such-model"),
    ],
    ids=["no prompt", "no answer", "negative id", "id past the vocabulary", "unknown model"],
)
def test_a_sequence_that_cannot_run_fails_alone(submit: Submit) -> None:
    loop = an_engine()
    loop.submit(a_submit("healthy"))
    loop.submit(submit)
    transcript = run_to_end(loop)
    assert transcript.failed["r"].reason == "internal"
    assert "healthy" in transcript.finished


def test_a_request_id_in_use_ends_both_sequences() -> None:
    loop = an_engine()
    loop.submit(a_submit("a", max_tokens=50, stop_token_ids=()))
    loop.turn()
    loop.submit(a_submit("a"))
    assert failure(loop).reason == "internal"
    assert loop.is_idle
    assert_nothing_is_held(loop)


def test_an_exception_in_a_step_fails_its_sequences_and_the_loop_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fatal = 23
    loop = an_engine(decoder=FakeDecoder(fatal_token=fatal))
    submit = a_submit("running", prompt=[5, 6, 7], max_tokens=3, stop_token_ids=())
    assert fatal not in expected_answer(submit)
    loop.submit(submit)
    transcript = Transcript()
    transcript.read(loop.turn())
    loop.submit(a_submit("doomed", prompt=[5, fatal]))
    with caplog.at_level(logging.ERROR):
        run_to_end(loop, transcript)
    assert transcript.failed["doomed"].reason == "internal"
    assert transcript.failed["doomed"].message == "the model's prefill step failed (RuntimeError)"
    assert transcript.tokens["running"] == expected_answer(submit)
    assert "the fatal token was read" in caplog.text
    [record] = caplog.records
    assert record.__dict__["request_id"] == "doomed"
    assert_nothing_is_held(loop)


def test_logits_that_are_not_finite_fail_their_sequence_alone() -> None:
    loop = an_engine(decoder=FakeDecoder(nan_token=23))
    submit = a_submit("good", max_tokens=3, stop_token_ids=())
    loop.submit(submit)
    loop.submit(a_submit("bad", prompt=[5, 23]))
    transcript = run_to_end(loop)
    assert transcript.failed["bad"].reason == "internal"
    assert transcript.tokens["good"] == expected_answer(submit)
    assert_nothing_is_held(loop)


def test_statistics_count_sequences_and_pages() -> None:
    loop = an_engine(max_batch=2, num_pages=16)
    for name in ("a", "b", "c"):
        loop.submit(a_submit(name, prompt=[3] * 10, max_tokens=60))
    assert loop.statistics().num_waiting == 3
    loop.turn()
    statistics = loop.statistics()
    assert (statistics.num_running, statistics.num_waiting) == (2, 1)
    assert statistics.num_free_pages == {MODEL: 14}
    assert statistics.loop_turn_ns > 1_600_000_000 * 10**9


def test_a_closed_loop_holds_nothing() -> None:
    loop = an_engine(max_batch=2)
    for name in ("a", "b", "c"):
        loop.submit(a_submit(name, prompt=[3] * 70, max_tokens=60))
    for _ in range(4):
        loop.turn()
    loop.close()
    assert loop.is_idle
    assert_nothing_is_held(loop)


def test_members_describe_both_phases_and_what_the_pool_has_room_for() -> None:
    prefill, decode = an_engine(num_pages=3).describe()
    assert (prefill.phase, decode.phase) == ("prefill", "decode")
    for member in (prefill, decode):
        assert member.model == MODEL
        assert member.context_tokens == 3 * PAGE_TOKENS
        assert member.num_pages == 3
        assert member.page_tokens == PAGE_TOKENS
        assert (member.weights_format, member.cache_format) == ("float32", "float32")
        assert member.revision == "fake"
