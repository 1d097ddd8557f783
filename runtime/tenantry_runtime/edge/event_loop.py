"""The edge's event loop: threads wake it only while it sleeps.

Granian's threads hand every request over by `call_soon_threadsafe`, which in asyncio writes a byte to a
socket each time, and has the loop read it. A loop that is at work looks for what there is to do anyway.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Sized
from contextvars import Context
from typing import Any, TypeVarTuple, cast

Args = TypeVarTuple("Args")


class _Selector(selectors.DefaultSelector):
    """Knows whether the loop waits in it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waiting = False
        self.ready: Sized = ()
        """What the loop has to do."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # in this order: what a thread adds before is seen here, and after it the thread wakes the loop
        self.is_waiting = True
        try:
            return super().select(0 if self.ready else timeout)
        finally:
            self.is_waiting = False


class EdgeLoop(asyncio.SelectorEventLoop):
    """For `anyio.run`: `backend_options={"loop_factory": EdgeLoop}`."""

    def __init__(self) -> None:
        self.num_woken = 0
        """Times that a thread had to wake it."""
        self._sleeping = _Selector()
        super().__init__(self._sleeping)
        # asyncio's own, which it says nothing of: its methods that subclasses may call have no better name
        self._sleeping.ready = cast(Any, self)._ready

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        if self.get_debug():
            # then `call_soon` minds whose thread it is
            return super().call_soon_threadsafe(callback, *args, context=context)
        handle = self.call_soon(callback, *args, context=context)
        if self._sleeping.is_waiting:
            self.num_woken += 1
            cast(Any, self)._write_to_self()
        return handle
