"""A wheel that is small and unpacks to more than a set of dependencies may have."""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import anyio
import pytest

from support.wheels import a_wheel
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import DependenciesRefused
from tenantry_runtime.workers.bundles import resolver
from tenantry_runtime.workers.bundles.dependencies import Dependencies

MIB = 1 << 20
NUM_FILES, FILE_BYTES = 40, 8 * MIB
MOST_BYTES = 2 * MIB
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def pack(wheel: Path) -> None:
    """Compress the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def num_bytes_in(folder: Path) -> int:
    """Return what pip has written so far."""
    return sum(resolver.size_of(each)[1] for each in folder.glob("tenantry-packages-*"))


@pytest.mark.asyncio
async def test_a_wheel_is_not_unpacked_far_beyond_what_a_set_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "MAX_BYTES", MOST_BYTES)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    index = tmp_path / "wheels"
    index.mkdir()
    content = "\0" * FILE_BYTES
    a_wheel(index, "bomb", "1.0", {f"bomb/{n}.txt": content for n in range(NUM_FILES)})
    (wheel,) = index.iterdir()
    pack(wheel)
    assert wheel.stat().st_size < MIB
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    made = Dependencies(tmp_path / "state", resolver.Resolver(python=PYTHON, environ=environ))
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, num_bytes_in(tmp_path))
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        with pytest.raises(DependenciesRefused, match="unpacked"):
            await made.resolve(TenantId("one"), ["bomb"])
        tasks.cancel_scope.cancel()
    assert most < NUM_FILES * FILE_BYTES / 2
