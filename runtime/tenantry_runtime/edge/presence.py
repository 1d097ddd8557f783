"""Working for a client only as long as it is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from tenantry_runtime.errors import TenantryError

T = TypeVar("T")


async def while_there(
    receive: Receive,
    work: Callable[[], Awaitable[T]],
    *,
    beside: Callable[[], Awaitable[None]] | None = None,
) -> T:
    """Do the work and return what it returns; cancel it when the client leaves.

    `beside` runs as long as the work does. Raises `ClientDisconnect` when the client has left, or
    when the work or `beside` found that out; other errors of the work come out as they are.
    """
    done: list[T] = []
    problems: list[TenantryError | ClientDisconnect] = []

    async def watch(until: Callable[[], Awaitable[None]]) -> None:
        try:
            await until()
        except ClientDisconnect as gone:
            problems.append(gone)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, lambda: _departure(receive))
        if beside is not None:
            tasks.start_soon(watch, beside)
        try:
            done.append(await work())
        except (TenantryError, ClientDisconnect) as problem:
            # out of the group as it is, not wrapped in an exception group
            problems.append(problem)
        tasks.cancel_scope.cancel()
    if done:
        return done[0]
    raise problems[0]


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
