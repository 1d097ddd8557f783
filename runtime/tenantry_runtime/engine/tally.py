"""How many steps a decode member took while a sequence was with it, and how many shared them.

Four additions a step, whatever the batch: a sequence remembers the sums at its beginning. It is in
none of the steps that are planned by then, and in those that have come back at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from tenantry_runtime.pool.messages import Timings

from .sequence import Sequence

MAX_BESIDE = 4
"""Others that are named: links of a span say whom to ask, not who all were there."""
_SAMPLED = frozenset("13579bdf")
"""What a `traceparent` ends in whose trace is kept: the lowest bit of its flags says so."""


class StepTally:
    """Of one page pool's decode steps."""

    def __init__(self) -> None:
        self._num_planned_steps = self._num_planned_rows = 0
        self._num_steps = self._num_rows = 0

    def planned(self, num_rows: int) -> None:
        """Count a step that begins."""
        self._num_planned_steps += 1
        self._num_planned_rows += num_rows

    def ended(self, num_rows: int) -> None:
        """Count a step that has come back."""
        self._num_steps += 1
        self._num_rows += num_rows

    def begin(self, sequence: Sequence) -> None:
        """The sequence decodes from here; one that goes on after a preemption has begun before."""
        if sequence.tally is None:
            sequence.tally = self._num_planned_steps, self._num_planned_rows

    def timings(self, sequence: Sequence, running: Mapping[str, Sequence], now_s: float) -> Timings:
        """Return what is told of a sequence that has finished; `running` are those still in the batch."""
        num_steps, num_rows = sequence.tally or (self._num_steps, self._num_rows)
        traced = (s.submit.traceparent for s in running.values())
        return sequence.timings(
            now_s,
            num_steps=self._num_steps - num_steps,
            num_step_rows=self._num_rows - num_rows,
            beside=tuple(islice((each for each in traced if each[-1:] in _SAMPLED), MAX_BESIDE)),
        )
