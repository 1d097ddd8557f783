"""Waking the one task that waits for something to happen."""

from __future__ import annotations

import anyio


class Bell:
    """Several mailboxes ring it; one task waits, looks, and waits again."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def rung(self) -> None:
        """Wait for a ring after this call: look first, and do nothing in between."""
        self._event = anyio.Event()
        await self._event.wait()
