"""What a runtime that was killed has left is removed by the next; what lives is not."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenantry_runtime.workers.sandbox import GroupLimits, GuestCode, Interpreter
from tenantry_runtime.workers.sandbox.cgroups import Hierarchy
from tenantry_runtime.workers.sandbox.groups import TemplateGroups
from tenantry_runtime.workers.sandbox.guest_folder import guest_folder

LONG_AGO = 1_000_000_000


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    (tmp_path / "msgspec").mkdir()
    return Interpreter(
        executable=sys.executable,
        version=(3, 11),
        path=(),
        libraries=(),
        msgspec_folder=str(tmp_path / "msgspec"),
    )


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    made = tmp_path / "folders"
    made.mkdir()
    return made


def left(parent: Path, name: str) -> Path:
    folder = parent / f"tenantry-template-{name}"
    (folder / "guest").mkdir(parents=True)
    os.utime(folder, (LONG_AGO, LONG_AGO))
    return folder


def pid_of_the_dead() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def a_group(parent: Path, pid: int) -> Path:
    folder = parent / f"tenantry-{pid}-{'a' * 12}"
    (folder / "template").mkdir(parents=True)
    return folder


@pytest.fixture
def locked(parent: Path) -> Iterator[Path]:
    folder = left(parent, "alive")
    opened = os.open(folder, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    yield folder
    os.close(opened)


def test_folders_of_the_dead_are_removed(
    interpreter: Interpreter, parent: Path, locked: Path
) -> None:
    dead = left(parent, "dead")
    new = left(parent, "new")
    os.utime(new)
    other = parent / "something-else"
    other.mkdir()

    with guest_folder(interpreter, GuestCode(), str(parent)) as mine:
        assert {*parent.iterdir()} == {mine, locked, new, other}
        # a second template of the same runtime leaves the first alone
        os.utime(mine, (LONG_AGO, LONG_AGO))
        with guest_folder(interpreter, GuestCode(), str(parent)):
            assert mine.exists()
    assert not dead.exists()
    assert not mine.exists()


@pytest.mark.asyncio
async def test_groups_of_the_dead_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = a_group(tmp_path, pid_of_the_dead()), a_group(tmp_path, os.getpid())
    hierarchy = Hierarchy(version=1, controllers=("memory",), own=tmp_path)
    monkeypatch.setattr(
        "tenantry_runtime.workers.sandbox.groups.find_hierarchies", lambda: [hierarchy]
    )

    await TemplateGroups.open(GroupLimits(memory_bytes=1 << 28), os.getpid())

    assert dead.name not in os.listdir(tmp_path)
    assert alive.name in os.listdir(tmp_path)
