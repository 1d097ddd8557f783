"""What is looked after from time to time: memory of idle isolates, and what nobody uses any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
import anyio.to_thread

from .config import EngineConfig
from .housing import Housing
from .lives import Lives
from .memory import private_bytes
from .resident import Resident

TIDY_S = 1.0
MAX_MEASURED = 100
"""At one time: the kernel needs up to a millisecond for each."""


class Keeper:
    """Tidies up every `TIDY_S`."""

    def __init__(
        self, lives: Lives, housing: Housing, config: EngineConfig, *, now: Callable[[], float]
    ) -> None:
        self._lives = lives
        self._housing = housing
        self._now = now
        self._idle_ns = 1e6 * config.idle_cpu_ms
        # its own, lest it take one of those that requests need
        self._threads = anyio.CapacityLimiter(1)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await anyio.sleep(TIDY_S)
            await self.tidy()

    async def tidy(self) -> None:
        """End what has to, once."""
        await self._look_at_idle()
        now_s = self._now()
        self._housing.tidy(now_s)
        self._lives.tidy(now_s)

    async def _look_at_idle(self) -> None:
        """Tell what memory idle isolates have, and end those that work."""
        idle = self._housing.idle
        if not len(idle):
            return
        unmeasured = idle.unmeasured()[:MAX_MEASURED]
        restless, sizes = await anyio.to_thread.run_sync(
            _look, tuple(idle), self._idle_ns, unmeasured, limiter=self._threads
        )
        for resident in restless:
            self._housing.end_restless(resident)
        for resident, num_bytes in zip(unmeasured, sizes, strict=True):
            if num_bytes is not None:
                idle.measured(resident, num_bytes)


def _look(
    idle: Sequence[Resident], most_ns: float, unmeasured: Sequence[Resident]
) -> tuple[list[Resident], list[int | None]]:
    # in a thread: what the kernel does for each takes from a microsecond to a millisecond
    restless = [resident for resident in idle if resident.used_while_idle_ns() > most_ns]
    return restless, [private_bytes(resident.confined.process.pid) for resident in unmeasured]
