"""Places of tenants: taken, waited for in turn, and given back whatever happens."""

from __future__ import annotations

import anyio
import pytest

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.bindings.places import Places

ALICE, BOB = TenantId("alice"), TenantId("bob")


async def waits(places: Places, num: int = 1) -> bool:
    """Whether one more of Alice's has to wait."""
    if places.try_take(ALICE, num):
        places.give_back(ALICE, num)
        return False
    return True


@pytest.mark.asyncio
async def test_a_tenant_has_so_many_and_another_its_own() -> None:
    places = Places(3)
    await places.take(ALICE, 2)
    await places.take(ALICE)
    assert await waits(places)
    await places.take(BOB, 3)
    places.give_back(ALICE, 2)
    assert not await waits(places, 2)
    assert await waits(places, 3)


@pytest.mark.asyncio
async def test_more_than_there_are_is_all_there_are() -> None:
    places = Places(3)
    await places.take(ALICE, 100)
    assert await waits(places)
    places.give_back(ALICE, 100)
    assert not await waits(places, 3)


@pytest.mark.asyncio
async def test_those_who_wait_are_served_in_turn() -> None:
    places = Places(2)
    await places.take(ALICE, 2)
    served: list[int] = []

    async def take(number: int, num: int) -> None:
        await places.take(ALICE, num)
        served.append(number)

    async with anyio.create_task_group() as tasks:
        for number, num in ((1, 2), (2, 1), (3, 1)):
            tasks.start_soon(take, number, num)
            await anyio.wait_all_tasks_blocked()
        places.give_back(ALICE)
        await anyio.wait_all_tasks_blocked()
        # one is free, which the second could have, but the first came first
        assert served == []
        assert await waits(places)
        places.give_back(ALICE)
        await anyio.wait_all_tasks_blocked()
        assert served == [1]
        places.give_back(ALICE, 2)
    assert served == [1, 2, 3]


@pytest.mark.asyncio
async def test_who_stops_waiting_takes_nothing_and_lets_others_pass() -> None:
    places = Places(2)
    await places.take(ALICE)
    served = anyio.Event()

    async def take_one() -> None:
        await places.take(ALICE)
        served.set()

    large = anyio.CancelScope()

    async def take_two() -> None:
        with large:
            await places.take(ALICE, 2)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_two)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(take_one)
        await anyio.wait_all_tasks_blocked()
        assert not served.is_set()
        large.cancel()
        await served.wait()
    places.give_back(ALICE, 2)
    assert not await waits(places, 2)


@pytest.mark.asyncio
async def test_who_is_canceled_as_the_turn_comes_gives_it_back() -> None:
    places = Places(1)
    await places.take(ALICE)
    scope = anyio.CancelScope()

    async def take() -> None:
        with scope:
            await places.take(ALICE)
            try:
                await anyio.sleep_forever()
            finally:
                places.give_back(ALICE)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        # both before it can run
        places.give_back(ALICE)
        scope.cancel()
    assert not await waits(places)
