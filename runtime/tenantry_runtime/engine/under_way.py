"""The steps of one pool that are planned and have not come back.

On a device a step is planned before the one before it has come back, so what they bring is reckoned
with: a sequence's next token is somewhere on the device, and its place in the cache is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tenantry_runtime.cache.pages import StepNumber
from tenantry_runtime.core import Phase

from .plan import Entry, StepPlan
from .sequence import Sequence
from .tally import StepTally


class StepsUnderWay:
    """Numbers steps, and keeps what they are about until they have come back."""

    def __init__(self) -> None:
        self.last: StepNumber = 0
        """Planned."""
        self.tally = StepTally()
        """Of decode steps."""
        self._plans: dict[StepNumber, StepPlan] = {}

    def __bool__(self) -> bool:
        return bool(self._plans)

    @property
    def prefilling(self) -> Collection[Sequence]:
        """Those of whose prompts a chunk is being computed."""
        plans = (plan for plan in self._plans.values() if plan.phase == "prefill")
        return [entry.sequence for plan in plans for entry in plan.entries]

    def begin(self, phase: Phase, entries: Iterable[Entry]) -> StepPlan:
        self.last += 1
        plan = StepPlan(step=self.last, phase=phase, entries=tuple(entries))
        self._plans[plan.step] = plan
        if phase == "decode":
            self.tally.planned(len(plan.entries))
            for entry in plan.entries:
                entry.sequence.num_coming += 1
        else:
            _reckon_chunk(plan, 1)
        return plan

    def end(self, plan: StepPlan) -> None:
        """A step has come back, or never will."""
        del self._plans[plan.step]
        if plan.phase == "decode":
            self.tally.ended(len(plan.entries))
            for entry in plan.entries:
                entry.sequence.num_coming -= 1
        else:
            _reckon_chunk(plan, -1)


def _reckon_chunk(plan: StepPlan, sign: int) -> None:
    for entry in plan.entries:
        entry.sequence.num_coming += sign * entry.wants_token
        entry.sequence.num_being_written += sign * len(entry.token_ids)
