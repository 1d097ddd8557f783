"""What a project's own files say of the interpreter and of dependencies."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from email.parser import BytesHeaderParser
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from tenantry_runtime.errors import ScriptRefused

from .modules import VENDORED, Module

PROJECT_FILE = "pyproject.toml"
MAX_PROJECT_BYTES = 256 << 10


def check_interpreter(modules: Sequence[Module], version: str, requires_python: str = "") -> None:
    """Raise `ScriptRefused` where a `requires-python`, of the worker or a package, is not fulfilled.

    `requires_python` is what the worker's project says, as whoever uploads has read it.
    """
    _check(requires_python or None, version, PROJECT_FILE)
    for module in modules:
        if module.path == PROJECT_FILE:
            _check(_project(module).get("requires-python"), version, module.path)
        elif module.path.startswith(VENDORED) and module.path.endswith(".dist-info/METADATA"):
            headers = BytesHeaderParser().parsebytes(module.content[:MAX_PROJECT_BYTES])
            _check(headers.get("Requires-Python"), version, module.path)


def requirements_of(
    modules: Sequence[Module], uploaded: Sequence[str], declared: Sequence[str] = ()
) -> list[str]:
    """Return what the worker depends on and has not vendored; raise `ScriptRefused`.

    A project whose packages are vendored needs none of those that it declares.
    """
    if is_vendored(modules):
        return list(uploaded)
    in_project = [
        text for module in modules if module.path == PROJECT_FILE for text in _dependencies(module)
    ]
    return list(dict.fromkeys([*uploaded, *declared, *in_project]))


def is_vendored(modules: Sequence[Module]) -> bool:
    return any(module.path.startswith(VENDORED) for module in modules)


# Any: whatever TOML holds
def _project(module: Module) -> dict[str, Any]:
    if len(module.content) > MAX_PROJECT_BYTES:
        raise ScriptRefused(f"has more than {MAX_PROJECT_BYTES} bytes", path=module.path)
    try:
        project = tomllib.loads(module.content.decode()).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ScriptRefused(f"is no TOML: {error}", path=module.path) from error
    if not isinstance(project, dict):
        raise ScriptRefused("has a `project` that is no table", path=module.path)
    return project


def _dependencies(module: Module) -> list[str]:
    given = _project(module).get("dependencies", [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ScriptRefused("has `dependencies` that are no list of texts", path=module.path)
    return given


def _check(wanted: object, version: str, path: str) -> None:
    if wanted is None:
        return
    try:
        allowed = SpecifierSet(str(wanted))
    except InvalidSpecifier as error:
        raise ScriptRefused(f"requires-python {wanted!r} is none", path=path) from error
    if not allowed.contains(version, prereleases=True):
        raise ScriptRefused(
            f"requires Python {wanted}, and workers run in Python {version} here",
            path=path,
            remedy="Widen requires-python if the code allows it, or have the operator change the "
            "interpreter of workers",
        )
