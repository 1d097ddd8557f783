"""What waits for a slow reader comes whole."""

from __future__ import annotations

import msgspec

from tenantry_runtime.core import ChosenLogprob, FinishReason, TokenLogprob
from tenantry_runtime.pool.messages import SequenceTokens, Timings
from tenantry_runtime.pool.pending import PendingTokens

TIMINGS = Timings(1, 2, 3, 4, 5)


def told(token_id: int, **fields: object) -> SequenceTokens:
    logprobs = (ChosenLogprob(TokenLogprob(token_id, -0.5)),)
    return SequenceTokens(
        request_id="r",
        token_ids=(token_id,),
        logprobs=logprobs,
        **fields,  # type: ignore[arg-type]
    )


def test_steps_that_nobody_has_read_become_one_message_that_lacks_nothing() -> None:
    pending = PendingTokens(told(7, cached_tokens=64))
    pending.add(told(8))
    pending.add(told(9, finish=FinishReason.STOP, timings=TIMINGS))

    assert len(pending) == 3
    whole = pending.take()

    assert whole.token_ids == (7, 8, 9)
    assert [entry.chosen.token_id for entry in whole.logprobs] == [7, 8, 9]
    assert (whole.cached_tokens, whole.finish, whole.timings) == (64, FinishReason.STOP, TIMINGS)
    # a field that is added to the message has to be merged too
    assert {field.name for field in msgspec.structs.fields(SequenceTokens)} == {
        "request_id",
        "token_ids",
        "finish",
        "cached_tokens",
        "timings",
        "logprobs",
    }


def test_one_step_is_passed_on_as_it_came() -> None:
    step = told(7, cached_tokens=64)
    assert PendingTokens(step).take() is step
