"""Whose turn it is: the lines of one pool, in the policy's order, and who may go before whom.

| a tenant whose first in line | | and the others |
|---|---|---|
| has pages, and tokens to prefill | has its turn | |
| has none, and fits | is admitted, and has its turn | |
| is at its ceiling, or in this chunk already | is passed over | go on as if it were not there |
| lacks room | waits | that are running or being prefilled go on; those that fit may be admitted before it, as far as the policy lets them, `MAX_OVERTAKEN` times; from then on whatever becomes free is for it |

Whoever is in the background has a turn where nobody else asks for one (`background.py`).

So room that is too little for one is not idle for long, and nobody waits for room for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence as ListLike

from tenantry_runtime.cache.pages import StepNumber
from tenantry_runtime.pool.messages import is_background

from .backlog import Backlog
from .policy import Policy
from .room import Fit, Room
from .sequence import Sequence, Waiting

MAX_OVERTAKEN = 8
"""A few short ones fill what a long one leaves; it waits for the longest of them, not for their sum."""


class Turns:
    """Everybody who asks for a turn: to have a prompt computed, or to have pages reserved."""

    def __init__(self, *, policy: Policy, room: Room) -> None:
        self._policy = policy
        self._room = room
        self.prompts = Backlog()
        self.arrivals = Backlog()
        """In part decode, waiting for pages."""

    @property
    def has_foreground(self) -> bool:
        """Whether anybody asks for a turn who is not in the background."""
        return any(
            not is_background(party)
            for line in (self.prompts, self.arrivals)
            for party in line.tenants
        )

    def line_of(self, sequence: Sequence) -> Backlog:
        return self.arrivals if sequence.submit.part == "decode" else self.prompts

    def is_behind(self, sequence: Sequence) -> bool:
        """Whether a sequence that comes now would have others before it in its line."""
        parties = self.line_of(sequence).tenants
        return any(is_background(party) <= sequence.is_background for party in parties)

    def append(self, sequence: Sequence) -> None:
        self._policy.queue(sequence.tenant)
        self.line_of(sequence).append(sequence)

    def restore(self, sequence: Sequence) -> None:
        """Put a preempted sequence ahead of its tenant's later ones."""
        # before it is taken out: its tenant has not stopped asking
        self._policy.queue(sequence.tenant)
        self.remove(sequence)
        self.line_of(sequence).restore(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out; one that does not ask is ignored."""
        line = self.line_of(sequence)
        if line.remove(sequence):
            self._policy.unqueue(sequence.tenant)
        if line.short is sequence:
            line.short = None

    def next_in(
        self, line: Backlog, *, beside: Collection[Sequence] = (), after: StepNumber
    ) -> Sequence | None:
        """Return whose turn it is; one that is not admitted yet fits, and holds its prefix.

        `beside` have had their turn; pages of who does not fit after all are free after the step.
        """
        passed_over: list[str] = []
        waiting: list[Sequence] = []
        is_barred = self.has_foreground or any(not s.is_background for s in beside)
        for tenant in self._policy.order(line.tenants):
            if is_barred and is_background(tenant):
                continue
            sequence = line.first(tenant, beside=beside)
            if sequence is None:
                passed_over.append(tenant)
                continue
            if not isinstance(sequence.state, Waiting):
                return sequence
            if not self._room.has_place:
                waiting = waiting or [sequence]
                line.short = waiting[0]
                continue
            older = self._older_of_others(line, sequence)
            if not self._may_overtake(sequence, waiting, older):
                continue
            match self._room.fit(sequence, after):
                case Fit.FITS:
                    for each in (*waiting, *older):
                        each.num_overtaken += 1
                    self._policy.admit(tenant, passed_over=passed_over)
                    return sequence
                case Fit.AT_CEILING:
                    passed_over.append(tenant)
                case Fit.SHORT:
                    waiting.append(sequence)
                    line.short = waiting[0]
        return None

    def make_way(self, preempt: Callable[[Sequence], bool], after: StepNumber) -> None:
        """Have the background give back the room that the next to be admitted lack."""
        if not self._room.num_background or not self.has_foreground:
            return
        for line in (self.arrivals, self.prompts):
            for tenant in self._policy.order(line.tenants):
                if is_background(tenant):
                    continue
                sequence = line.head(tenant)
                if not isinstance(sequence.state, Waiting):
                    break
                if self._room.make_way(sequence, preempt=preempt, after=after):
                    break

    def _may_overtake(
        self, sequence: Sequence, waiting: ListLike[Sequence], older: ListLike[Sequence]
    ) -> bool:
        if any(each.num_overtaken >= MAX_OVERTAKEN for each in (*waiting, *older)):
            return False
        # who waits is in the policy's order: who may go before the first may go before all
        tenants = (each.tenant for each in (*waiting[:1], *older))
        return all(self._policy.may_overtake(sequence.tenant, tenant) for tenant in tenants)

    def _older_of_others(self, line: Backlog, sequence: Sequence) -> list[Sequence]:
        """Return who lacks room in the other line and came before a sequence of this one."""
        short = (self.arrivals if line is self.prompts else self.prompts).short
        if short is None or not isinstance(short.state, Waiting):
            return []
        if short.is_background and not sequence.is_background:
            return []
        return [short] if short.arrival < sequence.arrival else []
