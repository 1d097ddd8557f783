from __future__ import annotations

from collections import Counter

import anyio
import pytest

from support.worker_routes import ACCOUNT, TableSource, a_version, deployed
from tenantry_runtime.edge.worker_routes import directory as module, open_directory
from tenantry_runtime.errors import AccountSuspended, StoreUnavailable

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
