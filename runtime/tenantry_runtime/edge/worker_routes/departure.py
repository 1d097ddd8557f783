"""Noticing, for next to nothing, that a client has gone away.

Listening for it costs two visits of the server's threads to the interpreter, so that nobody listens for
the clients of requests that are over at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup
from starlette.types import Message, Receive

PATIENCE_S = 0.05
"""Between the end of a request's body and the first look for who has gone: most are over by then."""


class Departures:
    """Has each listen when its patience is over."""

    def __init__(self) -> None:
        self._patient: deque[tuple[float, Departure]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, departure: Departure) -> None:
        """Let one listen later."""
        loop = asyncio.get_running_loop()
        self._patient.append((loop.time() + PATIENCE_S, departure))
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE_S, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        patient, now_s = self._patient, loop.time()
        while patient and patient[0][0] <= now_s:
            patient.popleft()[1].listen()
        self._timer = loop.call_at(patient[0][0], self._look) if patient else None


class Departure:
    """Cancels a scope, at most once, when the client leaves before `over` is called.

    To be armed when the request's body has come to its end, or nobody wants more of it.
    """

    def __init__(
        self, receive: Receive, tasks: TaskGroup, departures: Departures | None = None
    ) -> None:
        """Without `departures` it listens at once."""
        self.is_known = False
        """Whether the client has left."""
        self.cancels: anyio.CancelScope | None = None
        self._receive = receive
        self._tasks = tasks
        self._departures = departures
        self._is_armed = False
        self._is_over = False
        self._waiting: list[anyio.CancelScope] = []

    def arm(self) -> None:
        """Wait for what the client does next; what comes of a body is thrown away."""
        if not self._is_armed and not self._is_over:
            self._is_armed = True
            if self._departures is None:
                self._wait()
            else:
                self._departures.add(self)

    def listen(self) -> None:
        """Wait for it from now on, unless it is over."""
        if not self._is_over:
            self._wait()

    def meanwhile(self, function: Callable[[], Awaitable[None]]) -> None:
        """Have a function run, until `over` at the latest."""
        scope = anyio.CancelScope()
        self._waiting.append(scope)

        async def run() -> None:
            with scope:
                await function()

        self._tasks.start_soon(run)

    def over(self) -> None:
        """Care no longer: the response is whole, or nobody is left to send it to."""
        self._is_over = True
        for scope in self._waiting:
            scope.cancel()

    def happened(self) -> None:
        """Hear that the client has left."""
        if not self._is_over and not self.is_known:
            self.is_known = True
            if self.cancels is not None:
                self.cancels.cancel()

    def _wait(self) -> None:
        coming = self._receive()
        if asyncio.isfuture(coming):
            # granian's is one; a task that waits would cost as much as the rest of the edge's work
            coming.add_done_callback(self._came)
        else:
            self.meanwhile(lambda: self._until_gone(coming))

    # Any: the future is granian's own
    def _came(self, coming: Any) -> None:
        if self._is_over or coming.cancelled():
            return
        if coming.exception() is not None or _is_gone(coming.result()):
            self.happened()
        else:
            self._wait()

    async def _until_gone(self, coming: Awaitable[Message]) -> None:
        message = await coming
        while not _is_gone(message):
            message = await self._receive()
        self.happened()


def _is_gone(message: Message) -> bool:
    return bool(message["type"] == "http.disconnect")
