"""In which order triggers run that are due at one time."""

from __future__ import annotations

import anyio
import pytest

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.cron.waiting import (
    MAX_RUNNING_EACH,
    MAX_WAITING_EACH,
    Due,
    Waiting,
)

pytestmark = pytest.mark.asyncio

MANY, FEW = TenantId("many"), TenantId("few")


def due(account: TenantId, number: int = 0) -> Due:
    return Due(account, f"w{number}", "* * * * *", 0)


async def take_all(waiting: Waiting) -> list[Due]:
    """Take what runs without anything being done with."""
    taken: list[Due] = []

    async def take() -> None:
        while True:
            taken.append(await waiting.take())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    return taken


async def test_accounts_take_turns_and_each_has_its_own_order() -> None:
    waiting = Waiting()
    for number in range(3):
        waiting.put(due(MANY, number))
    waiting.put(due(FEW))
    taken = await take_all(waiting)
    assert taken == [due(MANY, 0), due(FEW), due(MANY, 1), due(MANY, 2)]


async def test_an_account_that_has_its_places_leaves_the_others() -> None:
    waiting = Waiting()
    for number in range(MAX_RUNNING_EACH + 2):
        waiting.put(due(MANY, number))
    taken = await take_all(waiting)
    assert len(taken) == MAX_RUNNING_EACH
    waiting.put(due(FEW))
    assert await take_all(waiting) == [due(FEW)]
    waiting.done(taken[0])
    assert await take_all(waiting) == [due(MANY, MAX_RUNNING_EACH)]


async def test_of_an_account_no_more_wait_than_agreed() -> None:
    waiting = Waiting()
    kept = [waiting.put(due(MANY, number)) for number in range(MAX_WAITING_EACH + 1)]
    assert (kept.count(True), kept[-1]) == (MAX_WAITING_EACH, False)
    assert waiting.put(due(FEW))


async def test_who_waits_is_woken_by_the_next_one_alone() -> None:
    waiting = Waiting()
    async with anyio.create_task_group() as tasks:
        taken: list[Due] = []

        async def take() -> None:
            taken.append(await waiting.take())

        for _ in range(2):
            tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        waiting.put(due(FEW, 1))
        await anyio.wait_all_tasks_blocked()
        assert taken == [due(FEW, 1)]
        waiting.put(due(FEW, 2))
    assert taken == [due(FEW, 1), due(FEW, 2)]
