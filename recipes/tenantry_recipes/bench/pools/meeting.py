"""Where several tasks wait for each other."""

from __future__ import annotations

import anyio


class Meeting:
    """Lets everybody go on when all are there."""

    def __init__(self, num_tasks: int) -> None:
        self._num_missing = num_tasks
        self._is_full = anyio.Event()

    async def attend(self) -> None:
        self._num_missing -= 1
        if not self._num_missing:
            self._is_full.set()
        await self._is_full.wait()
