"""The names under which Cloudflare's projects import this module, and those that they cannot have.

| import | is |
|---|---|
| `workers`, `workers.asgi`, … | this package |
| `asgi`, `wsgi` | `tenantry.workers.asgi`, `.wsgi`, unless the project has a module of that name |
| `js`, `pyodide`, `micropip`, … | refused, with what to write instead |
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PACKAGE = __package__ or "tenantry.workers"
VENDORED = "python_modules"
"""Where pywrangler puts packages: Cloudflare's own SDK is among them, and needs Pyodide."""

REFUSED = {
    "js": "Request, Response, Headers, FormData and fetch are in `workers`, as Python",
    "pyodide": "values are Python's own here: to_js and create_proxy have nothing to do",
    "pyodide_js": "values are Python's own here",
    "micropip": "dependencies of pyproject.toml are installed when the worker is deployed",
    "pyodide_http": "`fetch` of `workers` sends requests",
}


class AliasFinder:
    """Finds this package by Cloudflare's names, and says why what it refuses is not there.

    As the last of all finders it refuses nothing.
    """

    def __init__(self, *, is_last: bool) -> None:
        self._is_last = is_last

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = name.partition(".")
        if root == "workers":
            if rest == "workflows":
                raise ModuleNotFoundError(refusal("workers.workflows"), name=name)
            return _alias(name, f"{PACKAGE}.{rest}" if rest else PACKAGE)
        if name in ("asgi", "wsgi"):
            return None if self._has_own(name) else _alias(name, f"{PACKAGE}.{name}")
        if root in REFUSED and not self._is_last and not _is_only_asked():
            raise ModuleNotFoundError(refusal(root), name=name)
        return None

    def _has_own(self, name: str) -> bool:
        """Whether the project has a module of that name which is not Cloudflare's."""
        if self._is_last:
            return False
        found = PathFinder.find_spec(name)
        return found is not None and VENDORED not in (found.origin or "")


class _AliasLoader:
    def __init__(self, target: str) -> None:
        self._target = target
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the module has run under its own name, which it keeps
        module.__spec__ = self._own_spec


def _is_only_asked() -> bool:
    """Whether somebody asks `importlib.util.find_spec`, which has no answer but yes and no."""
    # this function, find_spec of the finder, the import system's, and who called that
    caller = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]
    return caller.f_globals.get("__name__") == "importlib.util"


def _alias(name: str, target: str) -> ModuleSpec:
    # importlib.abc, of which a loader would be, imports tempfile and random
    loader: Any = _AliasLoader(target)
    return ModuleSpec(name, loader)


def install_aliases(*, is_last: bool = False) -> AliasFinder:
    """Make the names importable; before all else, or with `is_last` where nothing else has them."""
    finder = AliasFinder(is_last=is_last)
    sys.meta_path.insert(len(sys.meta_path) if is_last else 0, finder)
    return finder


def refusal(name: str) -> str:
    """Say why a module is not there, and what to write instead."""
    if name == "workers.workflows":
        return "workers.workflows: this runtime has no workflows; a cron trigger can run each step"
    return f"a worker has no module {name!r}, as it runs in CPython: {REFUSED[name]}"
