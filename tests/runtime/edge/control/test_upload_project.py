"""What a project says of the interpreter and of what it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from support.control_plane import ACME, HELLO, ControlPlane
from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.spec import LockedPackage

PYTHON = "text/x-python"
ENTRY = (HELLO, PYTHON)


@pytest.mark.asyncio
async def test_a_project_that_the_interpreter_fails_is_refused(plane: ControlPlane) -> None:
    project = '[project]\nname = "a"\nrequires-python = ">=3.99"\n'

    put = await plane.upload(modules={"entry.py": ENTRY, "pyproject.toml": (project, "text/plain")})

    assert put.code == 10021
    assert ">=3.99" in put.message and "pyproject.toml" in put.message


@pytest.mark.asyncio
async def test_a_vendored_package_that_the_interpreter_fails_is_refused(
    plane: ControlPlane,
) -> None:
    path = "python_modules/a-1.dist-info/METADATA"
    content = "Metadata-Version: 2.1\nName: a\nRequires-Python: <3.0\n"

    put = await plane.upload(modules={"entry.py": ENTRY, path: (content, "text/plain")})

    assert put.code == 10021
    assert "<3.0" in put.message and path in put.message


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "metadata",
    [
        "Name: a\r\nrequires-python : <3.0\r\n\r\nText",
        "REQUIRES-PYTHON:<3.0",
        f"Requires-Python: {'>=3,' * 100}>=3",
        "Requires-Python: nonsense",
    ],
)
async def test_a_vendored_packages_headers_are_read_as_mail_has_them(
    plane: ControlPlane, metadata: str
) -> None:
    path = "python_modules/a-1.dist-info/METADATA"
    modules = {"entry.py": ENTRY, path: (metadata, "text/plain")}
    assert (await plane.upload(modules=modules)).code == 10021


@pytest.mark.asyncio
async def test_what_a_package_says_below_its_headers_is_none_of_them(plane: ControlPlane) -> None:
    path = "python_modules/a-1.dist-info/METADATA"
    content = "Name: a\n\nRequires-Python: <3.0\n"
    put = await plane.upload(modules={"entry.py": ENTRY, path: (content, "text/plain")})
    assert put.status == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("project", "told"),
    [
        ("a = [", "is no TOML"),
        ("a = " + "[" * 5000, "pyproject.toml"),
        ("project = 1", "no table"),
        ("[project]\nrequires-python = 3.11", "requires-python"),
        ("[project]\ndependencies = [1]", "dependencies"),
    ],
)
async def test_a_project_that_is_none_is_refused(
    plane: ControlPlane, project: str, told: str
) -> None:
    put = await plane.upload(modules={"entry.py": ENTRY, "pyproject.toml": (project, "text/plain")})
    assert put.code == 10021
    assert told in put.message


@pytest.mark.asyncio
async def test_a_project_that_takes_its_reader_a_minute_holds_up_nobody(
    plane: ControlPlane,
) -> None:
    # a key of so many parts: half a minute of a reader that is at work on it
    project = ".".join(["a"] * 100_000) + "=1"
    longest_s = 0.0
    async with anyio.create_task_group() as tasks:

        async def look() -> None:
            nonlocal longest_s
            while True:
                before_s = anyio.current_time()
                await anyio.lowlevel.checkpoint()
                longest_s = max(longest_s, anyio.current_time() - before_s)

        tasks.start_soon(look)
        modules = {"entry.py": ENTRY, "pyproject.toml": (project, "text/plain")}
        put = await plane.upload(modules=modules)
        tasks.cancel_scope.cancel()
    assert put.code == 10021
    assert "pyproject.toml" in put.message
    assert longest_s < 2.0


@pytest.mark.asyncio
async def test_dependencies_are_refused_where_nothing_resolves_them(plane: ControlPlane) -> None:
    files = {"entry.py": ENTRY, "fastapi": ("", "text/x-python-requirement")}

    put = await plane.upload(modules=files)

    assert put.code == 10021
    assert "fastapi" in put.message and "python_modules/" in put.message


class Resolving:
    """Says what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    async def resolve(self, tenant: TenantId, asked: Sequence[str]) -> Resolved:
        self.asked.append(tuple(asked))
        return Resolved()


@dataclass(frozen=True)
class Resolved:
    digest: str = "d" * 64
    lock: tuple[LockedPackage, ...] = (LockedPackage(name="a", version="1", sha256="0" * 64),)


@pytest.mark.asyncio
async def test_dependencies_and_isolation_stay_when_a_secret_changes(plane: ControlPlane) -> None:
    resolving = Resolving()
    plane.resolve_with(resolving)
    extensions = {"dependencies": ["a>=1"], "isolation": "request", "requires_python": ">=3.11"}
    put = await plane.upload(tenantry=extensions)
    assert put.status == 200

    secret = {"name": "KEY", "text": "1", "type": "secret_text"}
    assert (await plane.ask("PUT", "secrets", json=secret)).status == 201
    put_secret = await plane.workers.resolve(ACME, "hello", 0.0)
    # as `versions secret put` does: the files come once more
    await plane.upload("versions", keep_assets=True)
    uploaded_again = await plane.workers.versions.newest(ACME, "hello")

    assert resolving.asked == [("a>=1",)]
    for version in (put_secret, uploaded_again.version):
        assert (version.dependencies, version.lock) == ("d" * 64, Resolved().lock)
        assert version.isolation == "request"


@pytest.mark.asyncio
async def test_what_is_vendored_is_not_resolved(plane: ControlPlane) -> None:
    resolving = Resolving()
    plane.resolve_with(resolving)
    files = {"entry.py": ENTRY, "python_modules/a/__init__.py": ("", PYTHON)}

    put = await plane.upload(modules=files, tenantry={"dependencies": ["a"]})

    assert (put.status, resolving.asked) == (200, [])
    assert "not resolved" in put.body["messages"][0]["message"]
