"""Which of the hand-offs into a node gets the next free slot. No I/O.

Slots are promised for pages that their pusher has ready, in turn among the streams, so that one
with thousands of pages holds up no other; a promise that its stream never uses comes back with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Claim:
    """What one stream has asked for, and what it has been promised."""

    num_ready: int = 0
    """Pages that its pusher has had ready, in all."""
    num_promised: int = 0
    """In all."""
    promised: deque[int] = field(default_factory=deque)
    """Slots that its next pages go to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditStatistics:
    num_slots: int
    num_free: int
    num_promised: int
    num_waiting: int
    """Streams with pages that no slot is free for."""


class Credits:
    """The incoming slots of a node."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._window = max(1, num_slots // 2)
        """Promised to one stream at a time: what hides a round trip, and leaves some to others."""
        self._free = list(range(num_slots))
        self._claims: dict[Claim, None] = {}
        """Of all streams; those that were served last come last."""

    def open(self) -> Claim:
        claim = Claim()
        self._claims[claim] = None
        return claim

    def close(self, claim: Claim) -> set[Claim]:
        """Take back what was promised; return who has been promised more by that."""
        del self._claims[claim]
        self._free += claim.promised
        claim.promised.clear()
        return self._promise()

    def ask(self, claim: Claim, num_ready: int) -> set[Claim]:
        """Note that a stream has had so many pages ready; return who has been promised more."""
        claim.num_ready = max(claim.num_ready, num_ready)
        return self._promise()

    def take(self, claim: Claim) -> int | None:
        """Return the slot of a stream's next page, None if it has no credit; `ask` comes next."""
        return claim.promised.popleft() if claim.promised else None

    def free(self, slots: Iterable[int]) -> set[Claim]:
        """Take slots back; return who has been promised more by that."""
        self._free += slots
        return self._promise()

    def statistics(self) -> CreditStatistics:
        return CreditStatistics(
            num_slots=self._num_slots,
            num_free=len(self._free),
            num_promised=sum(len(claim.promised) for claim in self._claims),
            num_waiting=sum(_is_waiting(claim) for claim in self._claims),
        )

    def _promise(self) -> set[Claim]:
        served: set[Claim] = set()
        while self._free and (claim := self._next()) is not None:
            claim.promised.append(self._free.pop())
            claim.num_promised += 1
            # to the back of the queue
            del self._claims[claim]
            self._claims[claim] = None
            served.add(claim)
        return served

    def _next(self) -> Claim | None:
        eligible = (
            claim
            for claim in self._claims
            if _is_waiting(claim) and len(claim.promised) < self._window
        )
        return next(eligible, None)


def _is_waiting(claim: Claim) -> bool:
    return claim.num_ready > claim.num_promised
