"""Looks at the isolates that run something, as often as each of them needs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import anyio


class Watched(Protocol):
    """What is looked at; `Resident` is one."""

    next_look_s: float
    """The watchdog's, and 0 when it has to be looked at soon."""

    def look(self, now_s: float) -> float:
        """Return for how many seconds no look is needed."""
        ...


class Watchdog:
    """Polls in steps of `poll_s`, and not at all while nothing runs.

    The kernel tells the CPU time of another process when it is asked, and only then: there is nothing
    to wait for. A look costs some microseconds, and one that can find nothing is left out.
    """

    def __init__(self, *, poll_s: float, now: Callable[[], float]) -> None:
        self._poll_s = poll_s
        self._now = now
        self._watched: dict[Watched, None] = {}
        self._woken = anyio.Event()

    def watch(self, watched: Watched) -> None:
        """Look at something from now on."""
        self._watched[watched] = None
        self._woken.set()

    def leave(self, watched: Watched) -> None:
        """Look at it no more."""
        self._watched.pop(watched, None)

    async def run(self) -> None:
        """Look until it is cancelled."""
        while True:
            if not self._watched:
                self._woken = anyio.Event()
                await self._woken.wait()
            await anyio.sleep(self._poll_s)
            self.look()

    def look(self) -> None:
        """Look at all that are due."""
        now_s = self._now()
        for watched in tuple(self._watched):
            if watched.next_look_s <= now_s:
                watched.next_look_s = now_s + watched.look(now_s)
