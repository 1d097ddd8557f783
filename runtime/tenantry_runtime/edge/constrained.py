"""The grammars of answers, made and checked off the event loop.

Of one tenant they are made one at a time, in threads that all tenants share: who sends schemas that
take long waits for his own. What one takes is bounded in size and in time (`text/matching.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.to_thread

from tenantry_runtime.core import GenerateRequest
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.pool.messages import Constraint
from tenantry_runtime.text import Constraints, OutputState, Wanted

MAX_SECONDS = 5.0
"""Of work on one grammar: five times what the largest takes on an idle machine."""

NUM_THREADS = 4


@dataclass(slots=True, eq=False)
class _Line:
    """Those of one tenant that wait."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    num_waiting: int = 0


class Grammars:
    """Makes constraints for the answers of one model."""

    def __init__(self, constraints: Constraints, *, max_seconds: float = MAX_SECONDS) -> None:
        self._constraints = constraints
        self._max_seconds = max_seconds
        self._threads = anyio.CapacityLimiter(NUM_THREADS)
        self._lines: dict[str, _Line] = {}

    async def constraint(
        self, request: GenerateRequest, initial: OutputState, *, tenant: str
    ) -> Constraint | None:
        """Return what the answer has to fit, None where any will do.

        Raises `InvalidInput` where the request asks for what no grammar can be made of.
        """
        wanted = Wanted(
            initial=initial,
            tools=request.tools,
            choice=request.tool_choice,
            has_many=request.parallel_tool_calls,
            format=request.response_format,
        )
        if wanted.is_free:
            return None
        work = partial(self._constraints.grammar, wanted, tenant)
        async with self._turn(tenant), self._threads:
            with anyio.move_on_after(self._max_seconds):
                lark = await anyio.to_thread.run_sync(
                    work, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
                )
                return Constraint(lark=lark)
        problem = f"takes more than {self._max_seconds:g} seconds to compile"
        raise InvalidInput(wanted.field, problem)

    @asynccontextmanager
    async def _turn(self, tenant: str) -> AsyncIterator[None]:
        line = self._lines.setdefault(tenant, _Line())
        line.num_waiting += 1
        try:
            async with line.lock:
                yield
        finally:
            line.num_waiting -= 1
            if not line.num_waiting:
                del self._lines[tenant]
