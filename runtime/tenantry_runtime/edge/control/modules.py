"""Which files an upload may have, and what becomes of them.

| part | becomes |
|---|---|
| `text/x-python` | a module; its name is a path that ends in `.py` |
| `text/x-python-requirement` | a dependency: its name is a requirement, its content may be a version |
| `application/octet-stream`, `text/plain`, `application/json` | a file of that path |
| `application/source-map` | nothing: nobody reads it |
| anything else | a refusal that names it |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenantry_runtime.errors import ScriptRefused

from .form import Part

PYTHON = "text/x-python"
REQUIREMENT = "text/x-python-requirement"
FILES = frozenset({"application/octet-stream", "text/plain", "application/json", ""})
IGNORED = frozenset({"application/source-map"})

VENDORED = "python_modules/"
PROVIDED = ("workers", "pyodide", "js", "_pyodide", "_pyodide_core", "_cloudflare_compat_flags")
"""Packages that the runtime has itself, or that mean nothing here: a vendored copy is left out."""

MAX_PATH_BYTES = 255
MAX_DEPTH = 32

_MAX_SHOWN_CHARS = 255
"""Of a name in a refusal."""

USE_PYTHON = "Write the worker in Python: a main module like src/entry.py, with text/x-python"

_JAVASCRIPT = frozenset(
    {"application/javascript", "application/javascript+module", "text/javascript"}
)
_WASM_MAGIC = b"\0asm"
_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A file of a worker."""

    path: str
    content: bytes
    content_type: str

    @property
    def is_own(self) -> bool:
        """Whether the tenant wrote it, rather than vendored it."""
        return not self.path.startswith(VENDORED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Modules:
    """What an upload's parts say."""

    files: tuple[Module, ...]
    requirements: tuple[str, ...]
    messages: tuple[str, ...]
    """What was left out, and why."""


def read_modules(parts: Iterable[Part], main_module: str) -> Modules:
    """Check an upload's parts; raise `ScriptRefused` for the first that cannot be."""
    files: dict[str, Module] = {}
    requirements: list[str] = []
    left_out: set[str] = set()
    for part in parts:
        if part.content_type in IGNORED:
            continue
        if part.content_type == REQUIREMENT:
            requirements.append(_requirement(part))
            continue
        _check_kind(part)
        path = _checked_path(part.name)
        provided = _provided(path)
        if provided is not None:
            left_out.add(provided)
            continue
        files[path] = Module(
            path=path,
            content=part.content,
            content_type=part.content_type or "application/octet-stream",
        )
    _check_main(files, main_module)
    _check_tree(files)
    messages = [f"{VENDORED}{name} is left out: the runtime has its own" for name in left_out]
    return Modules(
        files=tuple(files.values()),
        requirements=tuple(requirements),
        messages=tuple(sorted(messages)),
    )


def _check_kind(part: Part) -> None:
    name, kind = part.name[:_MAX_SHOWN_CHARS], part.content_type
    if kind in _JAVASCRIPT or (name.endswith((".js", ".mjs", ".cjs")) and kind != PYTHON):
        # what a vendored package brings for browsers is a file like another
        if name.startswith(VENDORED) and kind in FILES:
            return
        raise ScriptRefused("JavaScript does not run here", path=name, remedy=USE_PYTHON)
    if kind == "application/wasm" or part.content.startswith(_WASM_MAGIC):
        raise ScriptRefused(
            "WebAssembly, such as a wheel built for Pyodide has, does not run here",
            path=name,
            remedy="Use a pure-Python package, or declare it as a dependency, so that a wheel for "
            "this interpreter is taken",
        )
    if "emscripten" in name or "wasm32" in name:
        raise ScriptRefused(
            "is of a wheel for Pyodide (Emscripten)",
            path=name,
            remedy="Declare the package as a dependency, so that a wheel for this interpreter is taken",
        )
    if part.content.startswith(_ELF_MAGIC):
        raise ScriptRefused(
            "is a native library, which cannot be uploaded",
            path=name,
            remedy="Declare the package as a dependency in pyproject.toml and deploy with workerctl",
        )
    if kind != PYTHON and kind not in FILES:
        raise ScriptRefused(
            f"{kind[:64]!r} is no kind of module that a Python worker has",
            path=name,
            remedy="Upload it as application/octet-stream, text/plain or application/json",
        )
    if kind == PYTHON and not name.endswith(".py"):
        raise ScriptRefused("is Python, but its name does not end in .py", path=name)


def _checked_path(name: str) -> str:
    path = name.removeprefix("./")
    segments = path.split("/")
    is_plain = path.isprintable() and not set(path) & set('\\:"')
    if (
        not is_plain
        or len(path.encode()) > MAX_PATH_BYTES
        or len(segments) > MAX_DEPTH
        or any(segment in ("", ".", "..") for segment in segments)
    ):
        raise ScriptRefused(
            f"{name[:_MAX_SHOWN_CHARS]!r} is no name of a file: a relative path with slashes, without "
            f"'..', of at most {MAX_PATH_BYTES} bytes"
        )
    return path


def _requirement(part: Part) -> str:
    version = part.content.decode(errors="replace").strip()
    return f"{part.name}=={version}" if version else part.name


def _provided(path: str) -> str | None:
    if not path.startswith(VENDORED):
        return None
    top = path.removeprefix(VENDORED).split("/")[0]
    name = top.removesuffix(".py")
    return name if name in PROVIDED else None


def _check_main(files: Mapping[str, Module], main_module: str) -> None:
    main = files.get(main_module)
    if not main_module.isascii():
        raise ScriptRefused(
            f"the main module's name {main_module[:_MAX_SHOWN_CHARS]!r} is not ASCII"
        )
    if main is None:
        raise ScriptRefused(
            f"the main module {main_module[:_MAX_SHOWN_CHARS]!r} is not in the upload"
        )
    if main.content_type != PYTHON:
        raise ScriptRefused("is the main module, and not Python", path=main.path, remedy=USE_PYTHON)


def _check_tree(files: Mapping[str, Module]) -> None:
    """Refuse a path that is a file and a folder, and paths that differ by case alone."""
    lower: dict[str, str] = {}
    for path in files:
        other = lower.setdefault(path.lower(), path)
        if other != path:
            raise ScriptRefused(f"differs from {other!r} by upper and lower case alone", path=path)
        for end, letter in enumerate(path):
            if letter == "/" and path[:end] in files:
                raise ScriptRefused(f"is below {path[:end]!r}, which is a file", path=path)
