"""A folder with a worker, a control plane to deploy it to, and `workerctl` run there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from support.fake_control_plane import ControlPlaneFake, a_control_plane
from support.worker_folder import WorkerFolder


@pytest.fixture
def plane() -> Iterator[ControlPlaneFake]:
    with a_control_plane() as fake:
        yield fake


@pytest.fixture
def folder(
    tmp_path: Path, plane: ControlPlaneFake, monkeypatch: pytest.MonkeyPatch
) -> WorkerFolder:
    """The current directory: a worker `hello`, signed in to `plane` by the environment."""
    for name, value in plane.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENANTRY_CONFIG_DIR", str(tmp_path / "config"))
    worker = WorkerFolder(tmp_path / "hello")
    monkeypatch.chdir(worker.path)
    return worker


@pytest.fixture
def run(folder: WorkerFolder) -> Callable[..., Result]:
    """Run `workerctl` in the folder."""
    return folder.run
