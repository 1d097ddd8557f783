"""A version is named to this edge's engine once what it depends on is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.worker_routes import ACCOUNT, TableSource, a_version, deployed
from tenantry_runtime.edge.installed import InstalledWorkers, KnownVersions
from tenantry_runtime.edge.worker_routes import open_directory
from tenantry_runtime.errors import DependenciesRefused, NoSuchRecord
from tenantry_runtime.workers.bundles.dependencies import Dependencies, DependencySet
from tenantry_runtime.workers.bundles.resolver import Resolver
from tenantry_runtime.workers.spec import LockedPackage

pytestmark = pytest.mark.asyncio

SIX = LockedPackage(name="six", version="1.17.0", sha256="0" * 64)


class Installing(Dependencies):
    """Remembers what it was to install."""

    def __init__(self, folder: Path, problem: Exception | None = None) -> None:
        super().__init__(folder, Resolver(python="3.11", environ={}))
        self.asked: list[DependencySet] = []
        self._problem = problem

    async def ensure(self, wanted: DependencySet) -> None:
        self.asked.append(wanted)
        if self._problem is not None:
            raise self._problem


async def test_what_another_edge_has_resolved_is_installed_by_its_lock(tmp_path: Path) -> None:
    source = TableSource(
        {
            (ACCOUNT, "hello"): deployed(
                (a_version(number=1), 50.0),
                (a_version(number=2, dependencies="d1", lock=(SIX,)), 50.0),
            )
        }
    )
    dependencies = Installing(tmp_path)
    # as far as they are asked, a table of workers is a store
    workers = InstalledWorkers(source, dependencies)  # type: ignore[arg-type]
    assert len((await workers.current(ACCOUNT, "hello")).versions) == 2
    lock = (LockedPackage(name="six", version="1.17.0", sha256="0" * 64),)
    assert dependencies.asked == [DependencySet(digest="d1", lock=lock)]


async def test_what_cannot_be_installed_leaves_the_others_of_a_deployment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = a_version(dependencies="d1", lock=(SIX,))
    source = TableSource({(ACCOUNT, "hello"): deployed((version, 100.0))})
    dependencies = Installing(tmp_path, DependenciesRefused("the index is away"))
    workers = InstalledWorkers(source, dependencies)  # type: ignore[arg-type]
    assert (await workers.current(ACCOUNT, "hello")).versions[0][0] is version
    assert "the index is away" in caplog.text


async def test_services_are_found_as_requests_find_them() -> None:
    source = TableSource({(ACCOUNT, "hello"): deployed(has_url=False)})
    async with open_directory(source) as directory:
        versions = KnownVersions(directory)
        for _ in range(3):
            assert (await versions.resolve(ACCOUNT, "hello", 0.5)).worker == "hello"
        with pytest.raises(NoSuchRecord):
            await versions.resolve(ACCOUNT, "absent", 0.5)
    assert source.num_asked == 2
