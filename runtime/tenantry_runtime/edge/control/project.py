"""What a project's own files say of the interpreter and of dependencies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tenantry_runtime.errors import ScriptRefused

from .modules import VENDORED, Module
from .scanning import scanned

SCAN = Path(__file__).with_name("project_scan.py")

PROJECT_FILE = "pyproject.toml"
MAX_PROJECT_BYTES = 256 << 10
MAX_METADATA_BYTES = 64 << 10
"""Of a package's headers, as far as they are looked at."""
MAX_SPECIFIER_CHARS = 256
TIMEOUT_S = 10.0

_REQUIRES_PYTHON = re.compile(
    rb"^requires-python[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE
)
_END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """What `project_scan` finds in a worker's project."""

    problem: str | None = None
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()


async def read_project(modules: Sequence[Module], interpreter: str) -> Project:
    """Read the project among an upload's files, if there is one; raise `ScriptRefused`."""
    module = next((each for each in modules if each.path == PROJECT_FILE), None)
    if module is None:
        return Project()
    if len(module.content) > MAX_PROJECT_BYTES:
        raise ScriptRefused(f"has more than {MAX_PROJECT_BYTES} bytes", path=module.path)
    project = await _scan(module.content, interpreter)
    if project.problem is not None:
        raise ScriptRefused(project.problem, path=module.path)
    return project


async def _scan(content: bytes, interpreter: str) -> Project:
    try:
        found = await scanned(interpreter, SCAN, content, TIMEOUT_S)
    except TimeoutError:
        return Project(problem="takes too long to read")
    if found is None:
        return Project(problem="cannot be read: it is nested too deeply, or takes too long")
    return msgspec.json.decode(found, type=Project)


def check_interpreter(
    modules: Sequence[Module], project: Project, version: str, requires_python: str = ""
) -> None:
    """Raise `ScriptRefused` where a `requires-python`, of the worker or a package, is not fulfilled.

    `requires_python` is what the worker's project says, as whoever uploads has read it.
    """
    _check(requires_python or None, version, PROJECT_FILE)
    _check(project.requires_python, version, PROJECT_FILE)
    for module in modules:
        if module.path.startswith(VENDORED) and module.path.endswith(".dist-info/METADATA"):
            _check(_wanted(module.content), version, module.path)


def _wanted(metadata: bytes) -> str | None:
    headers = _END_OF_HEADERS.split(metadata[:MAX_METADATA_BYTES], maxsplit=1)[0]
    found = _REQUIRES_PYTHON.search(headers)
    return None if found is None else found[1].decode(errors="replace").strip()


def requirements_of(
    modules: Sequence[Module], uploaded: Sequence[str], declared: Sequence[str]
) -> list[str]:
    """Return what the worker depends on and has not vendored; `declared` is what its project says.

    A project whose packages are vendored needs none of those that it declares.
    """
    if is_vendored(modules):
        return list(uploaded)
    return list(dict.fromkeys([*uploaded, *declared]))


def is_vendored(modules: Sequence[Module]) -> bool:
    return any(module.path.startswith(VENDORED) for module in modules)


def _check(wanted: str | None, version: str, path: str) -> None:
    if wanted is None:
        return
    if len(wanted) > MAX_SPECIFIER_CHARS:
        raise ScriptRefused("has a requires-python that is too long", path=path)
    try:
        allowed = SpecifierSet(wanted)
    except InvalidSpecifier as error:
        raise ScriptRefused(f"requires-python {wanted!r} is none", path=path) from error
    if not allowed.contains(version, prereleases=True):
        raise ScriptRefused(
            f"requires Python {wanted}, and workers run in Python {version} here",
            path=path,
            remedy="Widen requires-python if the code allows it, or have the operator change the "
            "interpreter of workers",
        )
