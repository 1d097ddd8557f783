"""A scheduler with work in the background: what its promises are there."""

from __future__ import annotations

from support.scheduling import Desk
from tenantry_runtime.engine.background import Layers
from tenantry_runtime.engine.fairness import VirtualCounters
from tenantry_runtime.engine.sequence import Prefilling, Sequence, Waiting


class LayeredDesk(Desk):
    """Checks of every plan that nobody in the background is in it while anybody else waits."""

    def __init__(
        self,
        *,
        num_pages: int = 16,
        max_batch: int = 4,
        chunk_tokens: int = 32,
        max_waiting: int = 1000,
    ) -> None:
        super().__init__(
            num_pages=num_pages,
            max_batch=max_batch,
            chunk_tokens=chunk_tokens,
            max_waiting=max_waiting,
            policy=Layers(VirtualCounters(), VirtualCounters()),
        )
        self.num_turns = 0
        self.first_planned: dict[str, int] = {}
        """The turn of each sequence's first piece, counted from 1."""
        self.num_computed = 0
        """Tokens that were computed in the background."""

    def turn(self) -> None:
        self.num_turns += 1
        someone_asks = any(
            isinstance(s.state, Waiting | Prefilling)
            for s in self.live.values()
            if not s.is_background
        )
        super().turn()
        for plan in self.last_plans:
            kinds = {entry.sequence.is_background for entry in plan.entries}
            assert not (someone_asks and True in kinds), "the background goes before somebody"
            assert plan.phase == "decode" or len(kinds) == 1
            for entry in plan.entries:
                self.first_planned.setdefault(entry.sequence.request_id, self.num_turns)
                self.num_computed += entry.sequence.is_background * len(entry.token_ids)

    def _has_its_turn(self, sequence: Sequence) -> bool:
        return not sequence.is_background
