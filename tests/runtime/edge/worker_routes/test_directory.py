from __future__ import annotations

from collections import Counter

import anyio
import pytest

from support.worker_routes import ACCOUNT, TableSource, a_version, deployed
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.worker_routes import directory as module, open_directory
from tenantry_runtime.errors import AccountSuspended, StoreUnavailable
from tenantry_runtime.tenancy.workers import Deployed

pytestmark = pytest.mark.asyncio


async def test_a_store_is_asked_once_for_requests_that_come_at_once() -> None:
    source = TableSource()
    async with open_directory(source) as directory, anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(directory.version, "acme", "hello")
    assert source.num_asked == 1


async def test_a_deploy_is_live_once_what_was_known_is_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = TableSource()
    async with open_directory(source) as directory:
        first = await directory.version("acme", "hello")
        source.workers[ACCOUNT, "hello"] = deployed((a_version(number=2), 100.0))
        assert await directory.version("acme", "hello") is first
        monkeypatch.setattr(module, "MAX_AGE_S", -1.0)
        second = await directory.version("acme", "hello")
    assert second is not None
    assert second.number == 2


async def test_a_deploy_of_this_edge_is_live_at_once() -> None:
    source, replaced = TableSource(), list[str]()
    async with open_directory(source, on_replaced=replaced.append) as directory:
        first = await directory.version("acme", "hello")
        source.workers[ACCOUNT, "hello"] = deployed((a_version(number=2, version_id="new"), 100.0))
        directory.forget(TenantId("globex"))
        assert await directory.version("acme", "hello") is first
        directory.forget(ACCOUNT)
        second = await directory.version("acme", "hello")
    assert first is not None
    assert second is not None
    assert second.number == 2
    assert replaced == [first.version_id]


async def test_what_was_being_read_when_something_changed_is_read_again() -> None:
    has_changed = anyio.Event()

    class Slow(TableSource):
        async def current(self, account: TenantId, worker: str) -> Deployed:
            found = await super().current(account, worker)
            await has_changed.wait()
            return found

    source = Slow()
    async with open_directory(source) as directory, anyio.create_task_group() as tasks:
        tasks.start_soon(directory.version, "acme", "hello")
        await anyio.wait_all_tasks_blocked()
        source.workers[ACCOUNT, "hello"] = deployed((a_version(number=2), 100.0))
        directory.forget(ACCOUNT)
        has_changed.set()
        version = await directory.version("acme", "hello")
    assert version is not None
    assert version.number == 2


async def test_a_route_that_has_come_is_found_at_once() -> None:
    source = TableSource()
    async with open_directory(source) as directory:
        assert await directory.route("acme.example", "/shop") is None
        source.routes["acme.example", "/shop"] = (ACCOUNT, "hello")
        directory.forget(ACCOUNT)
        assert await directory.route("acme.example", "/shop") == (ACCOUNT, "hello")


async def test_what_is_soon_too_old_is_read_again_while_requests_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = TableSource()
    async with open_directory(source) as directory:
        await directory.version("acme", "hello")
        monkeypatch.setattr(module, "REFRESH_AGE_S", -1.0)
        await directory.version("acme", "hello")
        await anyio.wait_all_tasks_blocked()
    assert source.num_asked == 2


async def test_versions_share_requests_by_their_percentages() -> None:
    split = deployed((a_version(number=1), 90.0), (a_version(number=2), 10.0))
    numbers = iter([place / 1000 for place in range(1000)])
    source = TableSource({(ACCOUNT, "hello"): split})
    async with open_directory(source, draw=lambda: next(numbers)) as directory:
        served = [await directory.version("acme", "hello") for _ in range(1000)]
    assert Counter(version.number for version in served if version) == {1: 900, 2: 100}


async def test_a_worker_that_there_is_not_is_remembered_too() -> None:
    source = TableSource({})
    async with open_directory(source) as directory:
        assert await directory.version("acme", "hello") is None
        assert await directory.version("acme", "hello") is None
    assert source.num_asked == 1


async def test_a_worker_without_a_url_answers_at_routes_alone() -> None:
    source = TableSource({(ACCOUNT, "hello"): deployed(has_url=False)})
    async with open_directory(source) as directory:
        assert await directory.version("acme", "hello", needs_url=True) is None
        assert await directory.version("acme", "hello") is not None


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (StoreUnavailable("away"), StoreUnavailable),
        (AccountSuspended(), AccountSuspended),
        (RuntimeError("a bug"), StoreUnavailable),
    ],
)
async def test_what_the_store_refuses_is_told_to_whoever_asks(
    problem: Exception, told: type[Exception]
) -> None:
    async with open_directory(TableSource(problem=problem)) as directory:
        with pytest.raises(told):
            await directory.version("acme", "hello")


async def test_a_store_that_is_away_is_asked_again() -> None:
    source = TableSource(problem=StoreUnavailable("away"))
    async with open_directory(source) as directory:
        with pytest.raises(StoreUnavailable):
            await directory.version("acme", "hello")
        source.problem = None
        assert await directory.version("acme", "hello") is not None


async def test_a_version_that_serves_no_more_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_AGE_S", -1.0)
    old, new = a_version(version_id="old"), a_version(version_id="new")
    source = TableSource({(ACCOUNT, "hello"): deployed((old, 100.0))})
    replaced: list[str] = []
    async with open_directory(source, draw=lambda: 0.0, on_replaced=replaced.append) as directory:
        await directory.version("acme", "hello")
        source.workers[ACCOUNT, "hello"] = deployed((old, 90.0), (new, 10.0))
        await directory.version("acme", "hello")
        assert replaced == []
        source.workers[ACCOUNT, "hello"] = deployed((new, 100.0))
        await directory.version("acme", "hello")
        await directory.version("acme", "hello")
        assert replaced == ["old"]
        del source.workers[ACCOUNT, "hello"]
        await directory.version("acme", "hello")
    assert replaced == ["old", "new"]
