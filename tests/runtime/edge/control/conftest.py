from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from support.control_plane import ControlPlane, a_control_plane
from tenantry_runtime.tenancy import open_store


async def _make(directory: Path) -> None:
    async with open_store(directory):
        pass


@pytest.fixture(scope="session")
def empty_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its tables and nothing in them, to be copied."""
    directory = tmp_path_factory.mktemp("control") / "state"
    anyio.run(_make, directory)
    return directory


@pytest_asyncio.fixture
async def plane(empty_state: Path, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    directory = tmp_path / "state"
    shutil.copytree(empty_state, directory)
    async with open_store(directory) as store, a_control_plane(store, directory) as made:
        yield made
