"""A batch gives each request the tokens that it would get alone, whatever joins, leaves or is preempted.

The fake model reads its pages as the real ones do; what a request must answer is computed without
an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, strategies as st

from support.engine import (
    MODEL,
    Transcript,
    a_submit,
    an_engine,
    assert_likelihoods,
    assert_nothing_is_held,
    expected_answer,
    run_to_end,
)
from support.fake_decoder import FakeConfig
from tenantry_runtime.core import PAGE_TOKENS, FinishReason, Sampling
from tenantry_runtime.pool.messages import Submit

EITHER_WAY = pytest.mark.parametrize("runs_ahead", [False, True], ids=["in turn", "ahead"])
NUM_PAGES = 5
VOCAB = FakeConfig().vocab_size

SAMPLINGS = st.builds(
    Sampling,
    seed=st.integers(0, 2**63 - 1),
    temperature=st.sampled_from([0.0, 0.0, 0.8, 1.5]),
    top_k=st.sampled_from([None, 5]),
    top_p=st.sampled_from([1.0, 0.9]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.4]),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.3]),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.2]),
    logit_bias=st.sampled_from([(), (), ((3, 2.0), (7, -100.0))]),
    top_logprobs=st.sampled_from([None, 0, 3]),
)
LENGTHS = st.integers(1, 90) | st.sampled_from([31, 32, 33, 63, 64, 65, 127, 128, 129, 150])


@dataclass(frozen=True)
class Join:
    num_prompt: int
    first_token: int
    max_tokens: int
    tenant: str
    sampling: Sampling
    stops: bool

    def submit(self, request_id: str) -> Submit:
        prompt = [(self.first_token + 7 * n) % VOCAB for n in range(self.num_prompt)]
        return a_submit(
            request_id,
            prompt=prompt,
            max_tokens=self.max_tokens,
            tenant=self.tenant,
            sampling=self.sampling,
            stop_token_ids=(0, 1) if self.stops else (),
        )


@dataclass(frozen=True)
class Leave:
    which: int


@dataclass(frozen=True)
class Turns:
    count: int


JOINS = st.builds(
    Join,
    num_prompt=LENGTHS,
    first_token=st.integers(0, VOCAB - 1),
    max_tokens=st.integers(1, 100),
    tenant=st.sampled_from(["acme", "globex"]),
    sampling=SAMPLINGS,
    stops=st.booleans(),
)
SCHEDULES = st.lists(
    JOINS | JOINS | st.builds(Leave, st.integers(0, 50)) | st.builds(Turns, st.integers(1, 40)),
    min_size=2,
    max_size=24,
)


@given(SCHEDULES, st.sampled_from([16, 32, 500]), st.booleans())
def test_each_request_gets_the_tokens_that_it_would_get_alone(
    schedule: list[Join | Leave | Turns], chunk_tokens: int, runs_ahead: bool
) -> None:
    loop = an_engine(
        num_pages=NUM_PAGES, max_batch=4, chunk_tokens=chunk_tokens, runs_ahead=runs_ahead
    )
    transcript = Transcript()
    submits: dict[str, Submit] = {}
    left: set[str] = set()
    for action in schedule:
        match action:
            case Join():
                submit = action.submit(f"r{len(submits)}")
                submits[submit.request_id] = submit
                loop.submit(submit)
            case Leave(which=which) if submits:
                request_id = f"r{which % len(submits)}"
                left.add(request_id)
                loop.cancel(request_id)
            case Leave():
                pass
            case Turns(count=count):
                for _ in range(count):
                    transcript.read(loop.turn())
        assert loop.audit() == []
    run_to_end(loop, transcript)

    assert_nothing_is_held(loop, NUM_PAGES)
    assert not transcript.failed
    for request_id, submit in submits.items():
        expected = expected_answer(submit)
        told = transcript.tokens[request_id]
        assert_likelihoods(transcript.logprobs[request_id], submit, told)
        if request_id in transcript.finished:
            assert told == expected
            ended_itself = expected[-1] in submit.stop_token_ids
            reason = FinishReason.STOP if ended_itself else FinishReason.LENGTH
            assert transcript.finish_reason(request_id) is reason
        else:
            assert request_id in left
            assert told == expected[: len(told)]


@EITHER_WAY
@pytest.mark.parametrize("chunk_tokens", [16, 64, 1000])
def test_preempted_requests_go_on_without_loss_or_repeat(
    chunk_tokens: int, runs_ahead: bool
) -> None:
    loop = an_engine(num_pages=6, max_batch=6, chunk_tokens=chunk_tokens, runs_ahead=runs_ahead)
    submits = [
        a_submit(
            f"r{n}",
            prompt=[n + 1] * (30 + 9 * n),
            max_tokens=3 * PAGE_TOKENS,
            sampling=Sampling(
                seed=n,
                temperature=float(n % 2),
                frequency_penalty=0.1 * (n % 3),
                repetition_penalty=1.0 + 0.2 * (n % 4),
                top_logprobs=2,
            ),
            stop_token_ids=(),
        )
        for n in range(6)
    ]
    for submit in submits:
        loop.submit(submit)
    transcript = run_to_end(loop)
    for submit in submits:
        told = transcript.tokens[submit.request_id]
        assert told == expected_answer(submit)
        assert_likelihoods(transcript.logprobs[submit.request_id], submit, told)
    num_chunks = [
        transcript.finished[submit.request_id].timings.num_prefill_chunks  # type: ignore[union-attr]  # it finished
        for submit in submits
    ]
    # six answers of 192 tokens do not fit six pages, so somebody was prefilled again
    fewest = [-(-len(submit.token_ids) // chunk_tokens) for submit in submits]
    assert sum(num_chunks) > sum(fewest)
    assert_nothing_is_held(loop, 6)


@EITHER_WAY
def test_requests_of_two_models_do_not_meet(runs_ahead: bool) -> None:
    loop = an_engine(models=(MODEL, "other-model"), runs_ahead=runs_ahead)
    submits = [
        a_submit(f"r{n}", prompt=range(1, 4 + n), model=model)
        for n, model in enumerate([MODEL, "other-model"] * 4)
    ]
    for submit in submits:
        loop.submit(submit)
    transcript = run_to_end(loop)
    for submit in submits:
        assert transcript.tokens[submit.request_id] == expected_answer(submit)
    assert_nothing_is_held(loop)


@pytest.mark.parametrize("num_said", [1, 7, 70])
def test_what_was_said_before_counts_as_answer_when_it_is_submitted_again(num_said: int) -> None:
    sampling = Sampling(
        seed=4,
        temperature=0.8,
        frequency_penalty=0.3,
        presence_penalty=0.2,
        repetition_penalty=1.3,
        logit_bias=((2, 1.5),),
    )
    submit = a_submit(prompt=[3, 4, 3], max_tokens=100, sampling=sampling, stop_token_ids=())
    expected = expected_answer(submit)
    again = msgspec.structs.replace(
        submit,
        token_ids=[*submit.token_ids, *expected[:num_said]],
        num_generated=num_said,
        max_tokens=100 - num_said,
    )
    loop = an_engine()
    loop.submit(again)
    assert run_to_end(loop).tokens["r"] == expected[num_said:]
