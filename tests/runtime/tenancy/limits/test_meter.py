"""Edges that die or pause, requests that are cancelled, and a store that does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import sqlalchemy as sa

from support.limits import (
    MODEL,
    Clock,
    a_principal,
    a_request,
    a_store,
    edges,
    is_admitted,
    num_edges,
    open_rows,
    written_down,
)
from tenantry_runtime.errors import LimitExceeded, StoreUnavailable
from tenantry_runtime.tenancy import Store, schema
from tenantry_runtime.tenancy.database import PAUSED_TRANSACTION_S
from tenantry_runtime.tenancy.limits import StoreLimiter
from tenantry_runtime.tenancy.limits.meter import MAX_GROUP, SIGN_EVERY_MS
from tenantry_runtime.tenancy.limits.tables import FORGET_AFTER_MS, VOID_AFTER_MS

VOID_S = VOID_AFTER_MS / 1000
FORGET_S = FORGET_AFTER_MS / 1000


@asynccontextmanager
async def an_edge_to_kill(store: Store) -> AsyncIterator[StoreLimiter]:
    """Run a limiter whose end is none of the orderly ones."""
    limiter = StoreLimiter(store.database)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(limiter.meter.run)
        yield limiter
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_what_a_killed_edge_had_open_is_free_after_some_seconds(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, request = Clock(), a_request(a_principal(concurrent=2))
    async with (
        a_store(tmp_path, database_url, clock) as store,
        edges(tmp_path, database_url, clock) as [limiter],
    ):
        async with an_edge_to_kill(store) as killed:
            # not left, nor collected, before all is over
            held = [killed.admit(request), killed.admit(request)]
            for each in held:
                await each.__aenter__()
        assert not await is_admitted(limiter, request)
        clock.advance(VOID_S)
        assert not await is_admitted(limiter, request)
        clock.advance(0.1)
        async with limiter.admit(request), limiter.admit(request):
            assert not await is_admitted(limiter, request)
        assert await num_edges(store) == 2

        clock.advance(FORGET_S)
        assert await is_admitted(limiter, request)
        assert await num_edges(store) == 1


@pytest.mark.asyncio
async def test_an_edge_that_ends_leaves_nothing(tmp_path: Path, database_url: str | None) -> None:
    clock, request = Clock(), a_request(a_principal(concurrent=2, tokens=1_000), answer=999)
    async with a_store(tmp_path, database_url, clock) as store:
        async with edges(tmp_path, database_url, clock) as [limiter]:
            async with limiter.admit(request) as permit:
                assert await open_rows(store) == [1]
                permit.use(100)
        assert await num_edges(store) == 0
        assert await open_rows(store) == []
        async with edges(tmp_path, database_url, clock) as [limiter]:
            # what it ended with has been written down
            async with limiter.admit(a_request(request.principal, prompt=900, answer=0)):
                assert not await is_admitted(limiter, a_request(request.principal))


@pytest.mark.asyncio
async def test_an_edge_that_was_paused_takes_its_places_again_and_none_that_it_does_not_have(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, request = Clock(), a_request(a_principal(concurrent=3))
    async with (
        a_store(tmp_path, database_url, clock) as store,
        edges(tmp_path, database_url, clock, 2) as [paused, other],
    ):
        first, second = paused.admit(request), paused.admit(request)
        await first.__aenter__()
        await second.__aenter__()
        # its own clock says so as well, but it is not asked anything
        clock.advance(FORGET_S + 1)
        async with other.admit(request), other.admit(request), other.admit(request):
            assert await open_rows(store) == [3]
            assert await num_edges(store) == 1

            await first.__aexit__(None, None, None)
            assert not await is_admitted(paused, request)
            assert await open_rows(store) == [1, 3]
        await second.__aexit__(None, None, None)
        await written_down(paused)
        await written_down(other)
        assert await open_rows(store) == []
        async with paused.admit(request), other.admit(request), paused.admit(request):
            assert await open_rows(store) == [1, 2]


@pytest.mark.asyncio
async def test_an_edge_that_is_only_quiet_keeps_its_places(
    tmp_path: Path, database_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what may be missed of its signs; here they come sooner, as the clock stands still meanwhile
    assert 2 * SIGN_EVERY_MS <= VOID_AFTER_MS
    monkeypatch.setattr("tenantry_runtime.tenancy.limits.meter.SIGN_EVERY_MS", 50)
    clock, request = Clock(), a_request(a_principal(concurrent=1))
    async with (
        a_store(tmp_path, database_url, clock) as store,
        edges(tmp_path, database_url, clock, 2) as [quiet, other],
    ):
        async with quiet.admit(request):
            for _ in range(2):
                clock.advance(VOID_S - 1)
                with anyio.fail_after(30):
                    while await latest_sign_ms(store) < clock():
                        await anyio.lowlevel.checkpoint()
                assert not await is_admitted(other, request)
        await written_down(quiet)
        assert await is_admitted(other, request)


async def latest_sign_ms(store: Store) -> int:
    async with store.database.connect() as connection:
        return int(await connection.scalar(sa.select(sa.func.max(schema.edges.c.seen_ms))) or 0)


@pytest.mark.postgresql
@pytest.mark.asyncio
async def test_a_process_that_stands_still_does_not_keep_its_locks(
    tmp_path: Path, postgresql_url: str
) -> None:
    async with (
        a_store(tmp_path, postgresql_url, Clock()) as store,
        store.database.begin() as connection,
    ):
        timeout = await connection.scalar(sa.text("SHOW idle_in_transaction_session_timeout"))
    assert timeout == f"{PAUSED_TRANSACTION_S:.0f}s"


@pytest.mark.asyncio
async def test_an_edge_that_is_given_up_between_sign_and_writing_registers_again(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, request = Clock(), a_request(a_principal(concurrent=3))
    async with (
        a_store(tmp_path, database_url, clock) as store,
        edges(tmp_path, database_url, clock) as [limiter],
    ):
        async with limiter.admit(request):
            async with store.database.begin() as connection:
                await connection.execute(sa.delete(schema.edges))
            async with limiter.admit(request):
                assert await open_rows(store) == [2]


@pytest.mark.asyncio
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233])
async def test_a_request_that_is_cancelled_at_any_step_holds_nothing(
    tmp_path: Path, steps: int
) -> None:
    principal = a_principal(requests=100, tokens=1_000, concurrent=1)
    clock, request = Clock(), a_request(principal, prompt=500, answer=500)
    async with (
        a_store(tmp_path, None, clock) as store,
        edges(tmp_path, None, clock) as [limiter],
    ):
        # rows that are new would take another way
        assert await is_admitted(limiter, request)
        await written_down(limiter)

        async def ask() -> None:
            async with limiter.admit(request):
                await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            for _ in range(steps):
                # more than one turn of the loop: the database's thread has its own
                await anyio.lowlevel.checkpoint()
                await anyio.to_thread.run_sync(int)
            tasks.cancel_scope.cancel()
        await written_down(limiter)
        await written_down(limiter)

        assert limiter.meter.own_open == {}
        assert await open_rows(store) == []
        standing = limiter.headers(principal, MODEL)["ratelimit"]
        assert '"tokens";r=1000;' in standing
        assert await is_admitted(limiter, request)


@pytest.mark.asyncio
async def test_one_tenants_flood_delays_another_by_no_more_than_two_transactions(
    tmp_path: Path,
) -> None:
    flood, quiet = a_principal("flood", requests=10_000), a_principal("quiet", requests=10_000)
    num_answered = 0

    async with edges(tmp_path, None, Clock()) as [limiter]:
        await is_admitted(limiter, a_request(flood))
        await is_admitted(limiter, a_request(quiet))

        async def ask() -> None:
            nonlocal num_answered
            await is_admitted(limiter, a_request(flood))
            num_answered += 1

        async with anyio.create_task_group() as tasks:
            for _ in range(4 * MAX_GROUP - 100):
                tasks.start_soon(ask)
            # all of them wait before the one that is not theirs
            await anyio.lowlevel.checkpoint()
            assert await is_admitted(limiter, a_request(quiet))
            num_before = num_answered

    assert num_before <= 2 * MAX_GROUP


@asynccontextmanager
async def held_up(store: Store) -> AsyncIterator[None]:
    """Hold what every transaction of limits needs."""
    async with store.database.begin() as connection:
        await connection.execute(sa.update(schema.rates).values(full_us=schema.rates.c.full_us))
        yield


@pytest.mark.asyncio
async def test_who_cannot_be_asked_admits_nobody_and_does_so_again_when_it_can(
    tmp_path: Path, database_url: str | None
) -> None:
    clock, request = Clock(), a_request(a_principal(requests=10, tokens=1_000, concurrent=2))
    async with (
        a_store(tmp_path, database_url, clock) as store,
        edges(tmp_path, database_url, clock, timeout_s=0.3) as [limiter],
    ):
        async with limiter.admit(request) as permit:
            permit.use(500)
            async with held_up(store):
                with anyio.fail_after(10), pytest.raises(StoreUnavailable, match="in time"):
                    await limiter.admit(request).__aenter__()
        # what ended while it could not be written is written now
        with anyio.fail_after(30):
            while True:
                try:
                    await written_down(limiter)
                    break
                except StoreUnavailable:
                    pass
        assert await open_rows(store) == []
        assert '"tokens";r=500;' in limiter.headers(request.principal, MODEL)["ratelimit"]
        async with limiter.admit(request), limiter.admit(request):
            with pytest.raises(LimitExceeded):
                await limiter.admit(request).__aenter__()


@pytest.mark.asyncio
async def test_who_has_no_limits_needs_no_store(tmp_path: Path) -> None:
    clock, request = Clock(), a_request(a_principal())
    async with (
        a_store(tmp_path, None, clock) as store,
        edges(tmp_path, None, clock, timeout_s=0.1) as [limiter],
        held_up(store),
    ):
        limiter.precheck(request.principal, MODEL)
        async with limiter.admit(request) as permit:
            permit.use(10)
    async with a_store(tmp_path, None, clock) as store:
        assert await num_edges(store) == 0
