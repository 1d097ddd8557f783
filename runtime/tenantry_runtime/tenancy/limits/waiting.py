"""Who waits to be admitted, in a fair order and a bounded number."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import CapacityExceeded, TenantryError

from .balances import Admission
from .terms import Terms

MAX_WAITING = 4096
"""At one time: several times what an edge has open by default."""

MAX_OF_ONE = 1024
"""Of one tenant: the others' places are not its to fill."""


Outcome: TypeAlias = Admission | TenantryError


@dataclass(slots=True, eq=False)
class Waiting:
    """One request, until it is known whether it may run."""

    terms: Terms
    num_tokens: int
    answered: anyio.Event = field(default_factory=anyio.Event)
    outcome: Outcome | None = None
    is_gone: bool = False
    """Nobody waits for the outcome any more."""

    def answer(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.answered.set()

    def result(self) -> Admission:
        """Return what was admitted, or raise why it was not."""
        assert self.outcome is not None
        if isinstance(self.outcome, TenantryError):
            raise self.outcome
        return self.outcome


class WaitingRoom:
    """Takes turns between tenants: who asks a lot waits for itself."""

    def __init__(self, *, max_waiting: int = MAX_WAITING, max_of_one: int = MAX_OF_ONE) -> None:
        self._max_waiting = max_waiting
        self._max_of_one = max_of_one
        self._num_waiting = 0
        # lines are dictionaries for their order, and so that leaving from the middle is cheap
        self._lines: OrderedDict[TenantId, dict[Waiting, None]] = OrderedDict()

    def __len__(self) -> int:
        return self._num_waiting

    def enter(self, waiting: Waiting) -> None:
        """Raises `CapacityExceeded` where all places are taken, or all that one tenant may take."""
        tenant = waiting.terms.place.tenant
        line = self._lines.get(tenant, {})
        if self._num_waiting >= self._max_waiting or len(line) >= self._max_of_one:
            raise CapacityExceeded
        line[waiting] = None
        self._lines[tenant] = line
        self._num_waiting += 1

    def leave(self, waiting: Waiting) -> bool:
        """Go before one's turn; False for who is not here."""
        tenant = waiting.terms.place.tenant
        line = self._lines.get(tenant)
        if line is None or waiting not in line:
            return False
        self._remove(tenant, line, waiting)
        return True

    def next(self, max_num: int) -> list[Waiting]:
        """Take out so many: one of each tenant in turn, the longest waiting of each."""
        chosen: list[Waiting] = []
        while self._lines and len(chosen) < max_num:
            tenant, line = next(iter(self._lines.items()))
            self._lines.move_to_end(tenant)
            waiting = next(iter(line))
            self._remove(tenant, line, waiting)
            chosen.append(waiting)
        return chosen

    def _remove(self, tenant: TenantId, line: dict[Waiting, None], waiting: Waiting) -> None:
        del line[waiting]
        self._num_waiting -= 1
        if not line:
            del self._lines[tenant]
