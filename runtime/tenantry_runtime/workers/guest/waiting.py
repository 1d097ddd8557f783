"""Invocations that wait for what cannot come: no timer, no call, no stream, no thread is left to wake them.

A further request could still set what one of them waits for: those that meet have `GRACE_S` for it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from .bundle import ROOT, relative

GRACE_S = 0.5
"""Between a wait that nothing but a further request can end, and the word that it never ends."""


class WatchfulSelector(selectors.DefaultSelector):
    """Asks whether somebody waits in vain, when the loop has no timer and nothing else to do.

    `is_vain` gets the number of files that the loop watches; `tell` is called if it still holds after
    the grace.
    """

    def __init__(self, is_vain: Callable[[int], bool], tell: Callable[[], None]) -> None:
        super().__init__()
        self._is_vain = is_vain
        self._tell = tell

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None and self._is_vain(len(self.get_map())):
            if ready := super().select(GRACE_S):
                return ready
            self._tell()
        return super().select(timeout)


def place_of_wait(task: asyncio.Task[Any]) -> tuple[str, int]:
    """Return the innermost file and line of the bundle's where a task waits; ("", 0): none."""
    place = ("", 0)
    awaited: Any = task.get_coro()
    while awaited is not None:
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None and frame.f_code.co_filename.startswith(ROOT):
            place = relative(frame.f_code.co_filename), frame.f_lineno
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    return place


def _first(awaited: Any, *names: str) -> Any:
    for name in names:
        found = getattr(awaited, name, None)
        if found is not None:
            return found
    return None
