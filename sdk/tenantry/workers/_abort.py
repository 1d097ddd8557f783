"""Ending what others wait for: a signal that is given along, and what gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

ResultT = TypeVar("ResultT")


class AbortError(Exception):
    """What was waited for has been aborted."""


class AbortSignal:
    """Says, once and for good, that nobody wants a result any more."""

    __slots__ = ("_listeners", "reason")

    def __init__(self) -> None:
        self.reason: BaseException | None = None
        self._listeners: list[Callable[[], None]] = []

    reason: BaseException | None
    """Why it was aborted."""

    @property
    def aborted(self) -> bool:
        """Whether it was."""
        return self.reason is not None

    def throw_if_aborted(self) -> None:
        """Raise the reason, if there is one."""
        if self.reason is not None:
            raise self.reason

    throwIfAborted = throw_if_aborted

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` when it is aborted: now, if it has been."""
        if self.aborted:
            listener()
        else:
            self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Forget a listener; nothing happens if there is no such one."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    @staticmethod
    def timeout(milliseconds: float) -> AbortSignal:
        """Return a signal that is aborted with a `TimeoutError` after a time."""
        signal = AbortSignal()
        error = TimeoutError(f"the signal timed out after {milliseconds:g} ms")
        asyncio.get_running_loop().call_later(milliseconds / 1000, signal._abort, error)
        return signal

    @staticmethod
    def any(signals: Iterable[AbortSignal]) -> AbortSignal:
        """Return a signal that is aborted with the first of these."""
        joined = AbortSignal()
        given = list(signals)

        def listener() -> None:
            joined._abort(next(signal.reason for signal in given if signal.aborted))

        for signal in given:
            signal.add_listener(listener)
        return joined

    def _abort(self, reason: BaseException | None) -> None:
        if self.aborted:
            return
        self.reason = reason or AbortError("the operation was aborted")
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


class AbortController:
    """Gives a signal, and aborts it."""

    __slots__ = ("signal",)

    def __init__(self) -> None:
        self.signal = AbortSignal()

    signal: AbortSignal

    def abort(self, reason: BaseException | None = None) -> None:
        """Abort the signal, with an `AbortError` if no reason is given; a second time does nothing."""
        self.signal._abort(reason)  # pyright: ignore[reportPrivateUsage]


async def until_aborted(awaitable: Awaitable[ResultT], signal: AbortSignal | None) -> ResultT:
    """Wait for a result; if the signal is aborted first, cancel it and raise the signal's reason."""
    if signal is None:
        return await awaitable
    task = asyncio.ensure_future(awaitable)

    def listener() -> None:
        task.cancel()

    signal.add_listener(listener)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        # the signal cancels the task; whoever cancels the caller means the caller
        current = asyncio.current_task()
        if signal.reason is not None and not (current and current.cancelling()):
            raise signal.reason from None
        raise
    finally:
        signal.remove_listener(listener)
