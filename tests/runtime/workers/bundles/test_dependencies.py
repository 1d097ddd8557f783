"""Sets of dependencies, from an index of wheels in a folder to what isolates start with."""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from pathlib import Path

import anyio
import pytest

from support.wheels import a_wheel
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import DependenciesMissing, DependenciesRefused
from tenantry_runtime.workers.bundles.dependencies import Dependencies
from tenantry_runtime.workers.bundles.resolver import Resolver
from tenantry_runtime.workers.spec import LockedPackage

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ONE, OTHER = TenantId("one"), TenantId("other")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    a_wheel(folder, "greeting", "1.0", {"greeting.py": "WORD = 'hello'\n"}, requires=("words>=2",))
    a_wheel(folder, "words", "2.1", {"words/__init__.py": "ALL = 1\n", "words/list.txt": "a\n"})
    a_wheel(folder, "words", "1.0", {"words/__init__.py": "ALL = 0\n"})
    return folder


def dependencies(tmp_path: Path, index: Path, *, is_shared: bool = True) -> Dependencies:
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "SECRET": "s3cr3t"}
    resolver = Resolver(python=PYTHON, environ=environ)
    return Dependencies(tmp_path / "state", resolver, is_shared=is_shared)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.asyncio
async def test_what_is_asked_for_and_what_that_needs_is_locked_and_unpacked(
    tmp_path: Path, index: Path
) -> None:
    found = await dependencies(tmp_path, index).resolve(ONE, ["greeting"])
    assert found.lock == (
        LockedPackage(
            name="greeting",
            version="1.0",
            sha256=sha256(index / "greeting-1.0-py3-none-any.whl"),
        ),
        LockedPackage(
            name="words",
            version="2.1",
            sha256=sha256(index / "words-2.1-py3-none-any.whl"),
        ),
    )
    directory = Path(dependencies(tmp_path, index).directory(found.digest))
    assert (directory / "greeting.py").read_text() == "WORD = 'hello'\n"
    assert (directory / "words" / "list.txt").read_text() == "a\n"


@pytest.mark.asyncio
async def test_an_edge_that_did_not_resolve_a_set_installs_the_same_bytes(
    tmp_path: Path, index: Path
) -> None:
    found = await dependencies(tmp_path, index).resolve(ONE, ["words<2"])
    elsewhere = dependencies(tmp_path / "elsewhere", index)
    with pytest.raises(DependenciesMissing):
        elsewhere.directory(found.digest)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(elsewhere.ensure, found)
    directory = Path(elsewhere.directory(found.digest))
    assert (directory / "words" / "__init__.py").read_text() == "ALL = 0\n"
    assert [path.name for path in directory.parent.iterdir()] == [found.digest]


@pytest.mark.asyncio
async def test_a_wheel_that_has_changed_since_is_not_installed(tmp_path: Path, index: Path) -> None:
    found = await dependencies(tmp_path, index).resolve(ONE, ["words<2"])
    a_wheel(index, "words", "1.0", {"words/__init__.py": "import os\n"})
    elsewhere = dependencies(tmp_path / "elsewhere", index)
    with pytest.raises(DependenciesRefused, match="DO NOT MATCH THE HASHES"):
        await elsewhere.ensure(found)
    with pytest.raises(DependenciesMissing):
        elsewhere.directory(found.digest)


@pytest.mark.asyncio
async def test_nothing_that_would_have_to_be_built_is_taken_and_no_code_of_it_runs(
    tmp_path: Path, index: Path
) -> None:
    trace = tmp_path / "it-ran"
    setup = tmp_path / "setup.py"
    setup.write_text(
        f"open({str(trace)!r}, 'w')\nfrom setuptools import setup\nsetup(name='built')\n"
    )
    with tarfile.open(index / "built-1.0.tar.gz", "w:gz") as archive:
        archive.add(setup, "built-1.0/setup.py")
    with pytest.raises(DependenciesRefused, match="built"):
        await dependencies(tmp_path, index).resolve(ONE, ["built"])
    assert not trace.exists()


@pytest.mark.asyncio
async def test_nothing_is_left_that_a_start_would_run(tmp_path: Path, index: Path) -> None:
    a_wheel(index, "sly", "1.0", {"sly.py": "", "sly.pth": "import os; os.abort()\n"})
    found = await dependencies(tmp_path, index).resolve(ONE, ["sly"])
    directory = Path(dependencies(tmp_path, index).directory(found.digest))
    assert (directory / "sly.py").exists()
    assert not (directory / "sly.pth").exists()


@pytest.mark.asyncio
async def test_what_the_index_does_not_have_is_named(tmp_path: Path, index: Path) -> None:
    with pytest.raises(DependenciesRefused, match="nowhere"):
        await dependencies(tmp_path, index).resolve(ONE, ["nowhere"])
    with pytest.raises(DependenciesRefused, match=r"words"):
        await dependencies(tmp_path, index).resolve(ONE, ["greeting", "words<2"])


@pytest.mark.asyncio
async def test_tenants_share_a_set_unless_the_operator_says_otherwise(
    tmp_path: Path, index: Path
) -> None:
    shared = dependencies(tmp_path, index)
    assert (await shared.resolve(ONE, ["words"])).digest == (
        await shared.resolve(OTHER, ["words"])
    ).digest
    own = dependencies(tmp_path, index, is_shared=False)
    assert (await own.resolve(ONE, ["words"])).digest != (
        await own.resolve(OTHER, ["words"])
    ).digest


@pytest.mark.asyncio
async def test_no_dependencies_are_no_set(tmp_path: Path, index: Path) -> None:
    found = await dependencies(tmp_path, index).resolve(ONE, ["workers-runtime-sdk"])
    assert (found.digest, found.lock) == ("", ())


@pytest.mark.asyncio
async def test_pip_writes_nowhere_else_and_knows_nothing_of_the_operator(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, hidden = tmp_path / "elsewhere", tmp_path / "hidden"
    hidden.write_text("s3cr3t")
    # in the place of pip
    tries = (
        "import os, sys\n"
        "found = [repr(dict(os.environ))]\n"
        f"for path, mode in (({str(hidden)!r}, 'r'), ({str(elsewhere)!r}, 'w'), ('mine', 'w')):\n"
        "    try:\n"
        "        found.append(open(path, mode).name)\n"
        "    except OSError as error:\n"
        "        found.append(type(error).__name__)\n"
        "sys.exit('ERROR: ' + ' '.join(found))\n"
    )
    monkeypatch.setattr("tenantry_runtime.workers.bundles.resolver.PIP", ["-c", tries])
    with pytest.raises(DependenciesRefused) as refused:
        await dependencies(tmp_path, index).resolve(ONE, ["words"])
    text = str(refused.value)
    assert "s3cr3t" not in text
    assert text.endswith("PermissionError PermissionError mine")
    assert not elsewhere.exists()
    assert os.environ["PATH"] not in text
