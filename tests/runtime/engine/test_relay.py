"""A whole sequence that is preempted in one of its parts begins again, and nobody notices."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from support.engine import a_submit
from tenantry_runtime.engine.relay import Relay
from tenantry_runtime.pool.messages import (
    Deliver,
    Preempted,
    SequenceTokens,
    Started,
    Submit,
)


@dataclass(eq=False)
class Parts:
    """Notes what it is told to run."""

    run: list[Submit] = field(default_factory=list)

    def run_part(self, submit: Submit, *, is_again: bool = False) -> None:
        self.run.append(submit)

    def deliver(self, deliver: Deliver) -> None:
        raise AssertionError("nothing has been reserved")

    def cancel_parts(self, request_id: str) -> None:
        pass


@pytest.mark.parametrize("num_preemptions", [0, 1, 2])
@pytest.mark.parametrize("first_cached", [0, 64])
def test_a_sequence_is_billed_by_what_was_cached_when_it_first_started(
    num_preemptions: int, first_cached: int
) -> None:
    relay = Relay(Parts())
    relay.begin(a_submit(prompt=[5] * 300), 1.0)
    cached = first_cached
    for _ in range(num_preemptions):
        assert relay.hear(Started(request_id="r", cached_tokens=cached), 2.0) is None
        assert relay.hear(Preempted(request_id="r"), 3.0) is None
        # what was computed for nothing is in the prefix tree now
        cached = 256
    assert relay.hear(Started(request_id="r", cached_tokens=cached), 4.0) is None
    tokens = SequenceTokens(request_id="r", token_ids=(7,), cached_tokens=cached)
    told = relay.hear(tokens, 5.0)
    assert isinstance(told, SequenceTokens)
    assert told.cached_tokens == first_cached


def test_what_was_said_is_part_of_the_prompt_when_it_begins_again() -> None:
    parts = Parts()
    relay = Relay(parts)
    relay.begin(a_submit(prompt=[5, 6], max_tokens=4), 1.0)
    relay.hear(Started(request_id="r", cached_tokens=0), 2.0)
    relay.hear(SequenceTokens(request_id="r", token_ids=(7,)), 3.0)
    relay.hear(Preempted(request_id="r"), 4.0)
    again = parts.run[-1]
    assert (again.part, again.token_ids, again.max_tokens) == ("prefill", [5, 6, 7], 3)
    assert again.num_generated == 1
