"""What a worker's author derives from, and what handlers are given next to the request."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ._env import Env
from ._host import Invocation, current
from ._values import JsonObject

ResultT = TypeVar("ResultT")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])


class Context:
    """What a handler can ask about its invocation, and leave to be done after it."""

    __slots__ = ("_invocation", "props")

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self.props = JsonObject()

    props: JsonObject
    """Empty: what a binding gives to whom it calls is not known here."""

    def wait_until(self, awaitable: Awaitable[ResultT]) -> asyncio.Task[ResultT]:
        """Let something go on after the response, held until it ends.

        It outlives the client's connection, within a limit (30 s unless the deployment says another).
        What it raises is logged and harms nothing else; it may be awaited as well.
        """
        return keep(self._invocation, awaitable)

    waitUntil = wait_until

    def pass_through_on_exception(self) -> None:
        """Do nothing: there is no origin behind a worker to which a request could pass."""

    passThroughOnException = pass_through_on_exception


class WorkerEntrypoint:
    """What a worker's classes derive from: `Default` answers requests, others answer by their names.

    `fetch(request)` and `scheduled(controller)` are handlers, every other public method can be called
    through a service binding. One is made for each invocation; a handler leaves out what it does not
    need of `request, env, ctx`.
    """

    ctx: Context
    env: Env

    def __init__(self, ctx: Context, env: Env) -> None:
        self.ctx = ctx
        self.env = env


class ScheduledController:
    """Which cron trigger has come due, and when."""

    __slots__ = ("cron", "scheduled_time")

    def __init__(self, cron: str, scheduled_ms: int) -> None:
        self.cron = cron
        self.scheduled_time = scheduled_ms

    cron: str
    scheduled_time: int
    """Milliseconds of Unix time."""

    @property
    def scheduledTime(self) -> int:
        """`scheduled_time`, by the web's name."""
        return self.scheduled_time

    @property
    def type(self) -> str:
        """`scheduled`."""
        return "scheduled"

    def no_retry(self) -> None:
        """Do nothing: a trigger that fails is not run again."""

    noRetry = no_retry


def handler(function: HandlerT) -> HandlerT:
    """Mark a module's handler, such as `on_fetch`; it is one without this too."""
    return function


def wait_until(awaitable: Awaitable[ResultT]) -> asyncio.Task[ResultT]:
    """Let something go on after the current response: `ctx.wait_until`, from anywhere."""
    return keep(current(), awaitable)


def keep(invocation: Invocation, awaitable: Awaitable[ResultT]) -> asyncio.Task[ResultT]:
    """Hold something until it ends, and log what it raises."""
    task = asyncio.ensure_future(_as_coroutine(awaitable))
    invocation.tasks.add(task)
    task.add_done_callback(lambda done: _settled(invocation, done))
    return task


async def _as_coroutine(awaitable: Awaitable[ResultT]) -> ResultT:
    return await awaitable


def _settled(invocation: Invocation, task: asyncio.Task[Any]) -> None:
    invocation.tasks.discard(task)
    if task.cancelled() or (error := task.exception()) is None:
        return
    text = "".join(traceback.format_exception(error)).rstrip()
    invocation.host.log("error", f"what wait_until was given failed\n{text}")
