"""How a node leaves: it takes nothing new, lets what runs finish, and ends.

| asked by | then |
|---|---|
| SIGTERM, SIGINT or `/tenantry.Node/Drain` | new sequences are refused with `capacity`; the node ends when none runs, at the latest after `drain_s` |
| SIGTERM or SIGINT again | what runs fails, and the node ends |
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable

import anyio

from .dispatch import Dispatch

_log = logging.getLogger(__name__)


class Drain:
    """Whether a node is leaving."""

    def __init__(self, on_begun: Callable[[], None] | None = None) -> None:
        self._on_begun = on_begun
        self._begun = anyio.Event()
        self._over = anyio.Event()

    @property
    def is_begun(self) -> bool:
        return self._begun.is_set()

    def begin(self) -> None:
        """Take nothing new from now on."""
        if not self.is_begun:
            self._begun.set()
            if self._on_begun is not None:
                self._on_begun()

    def cut_short(self) -> None:
        """Do not wait for what runs."""
        self.begin()
        self._over.set()

    async def follow_signals(self) -> None:
        """Begin on the first signal, cut short on the next."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            number = await anext(signals)
            _log.info("stopping on %s", number.name)
            self.begin()
            number = await anext(signals)
            _log.info("stopping at once on %s", number.name)
            self.cut_short()

    async def until_over(self, dispatch: Dispatch, drain_s: float) -> None:
        """Return when the node may end."""
        await self._begun.wait()
        with anyio.move_on_after(drain_s):
            async with anyio.create_task_group() as tasks:

                async def until_quiet() -> None:
                    await dispatch.until_quiet()
                    tasks.cancel_scope.cancel()

                tasks.start_soon(until_quiet)
                await self._over.wait()
                tasks.cancel_scope.cancel()
