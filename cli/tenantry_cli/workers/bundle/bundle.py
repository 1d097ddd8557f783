"""A worker's files, as they are uploaded.

| file | its name | content type |
|---|---|---|
| `*.py` in main's folder and below | relative to main's folder | text/x-python |
| `*.txt`, `*.html`, `*.sql` there | the same | text/plain |
| `*.bin` there | the same | application/octet-stream |
| what `rules` of the configuration name there | the same | by the rule's type |
| `python_modules/` beside the configuration | `python_modules/…` | text/x-python, or application/octet-stream |

Left out: hidden files and folders, `__pycache__`, `node_modules`, virtual environments, and of
python_modules what `python_modules.exclude` matches (`**/*.pyc`, unless it says otherwise).
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from tenantry_cli.workers.config import ConfigError, Project

from .globs import matches
from .requirements import PYPROJECT, Requirements, read_requirements

MAX_BYTES = 64 << 20
"""Of all files together: Cloudflare's limit, and the control plane's."""
VENDORED = "python_modules"

PYTHON, TEXT, DATA = "text/x-python", "text/plain", "application/octet-stream"
_TYPES = {PYTHON: "python", TEXT: "text", DATA: "data"}
_RULES = (
    (PYTHON, ("**/*.py",)),
    (TEXT, ("**/*.txt", "**/*.html", "**/*.sql")),
    (DATA, ("**/*.bin",)),
)
_OF_RULE = {"PythonModule": PYTHON, "Text": TEXT, "Data": DATA}
_NEVER = frozenset({"__pycache__", "node_modules"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One file."""

    name: str
    """With slashes."""
    content: bytes
    content_type: str

    @property
    def type(self) -> str:
        """The word for its content type: `python`, `text` or `data`."""
        return _TYPES[self.content_type]

    @property
    def is_vendored(self) -> bool:
        """Whether it was installed, rather than written."""
        return self.name.startswith(f"{VENDORED}/")


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """All files, the main module first, then by name."""

    main_module: str
    modules: tuple[Module, ...]
    requirements: Requirements

    @property
    def num_bytes(self) -> int:
        """Of all files together."""
        return sum(len(module.content) for module in self.modules)

    @cached_property
    def num_gzip_bytes(self) -> int:
        """Of all files together, compressed."""
        return len(gzip.compress(b"".join(module.content for module in self.modules), 6, mtime=0))

    @cached_property
    def digest(self) -> str:
        """The same for the same files and requirements."""
        hashed = hashlib.sha256(repr((self.main_module, self.requirements)).encode())
        for module in self.modules:
            hashed.update(
                f"\0{module.name}\0{module.content_type}\0{len(module.content)}\0".encode()
            )
            hashed.update(module.content)
        return hashed.hexdigest()


def make_bundle(project: Project) -> Bundle:
    """Read the files of a project. Raises ConfigError where there is no main module."""
    main = _main(project)
    found = {module.name: module for module in _beside(main.parent, project)}
    main_module = found.pop(main.name, None) or Module(
        name=main.name, content=main.read_bytes(), content_type=PYTHON
    )
    vendored = _vendored(project)
    modules = (main_module, *sorted([*found.values(), *vendored], key=_order))
    bundle = Bundle(
        main_module=main.name, modules=modules, requirements=read_requirements(project.root)
    )
    if bundle.num_bytes > MAX_BYTES:
        raise click.ClickException(_too_large(bundle))
    return bundle


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write the files as they would be uploaded."""
    for module in bundle.modules:
        path = folder / module.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(module.content)


def sources(project: Project) -> Iterator[Path]:
    """Yield all files that a bundle may be made of; a change of others changes nothing."""
    if project.main is not None:
        yield from _walk(project.main.parent)
    yield from _walk(project.root / VENDORED)
    yield project.root / PYPROJECT


def _main(project: Project) -> Path:
    main = project.main
    if main is None:
        raise ConfigError(
            project.source, ['it has no main; add one, such as "main": "src/entry.py"']
        )
    if main.suffix != ".py":
        raise ConfigError(
            project.source, [f"main: {main.name} is not Python (.py), which workers are written in"]
        )
    if not main.is_file():
        raise ConfigError(project.source, [f"main: there is no file {main}"])
    return main


def _beside(folder: Path, project: Project) -> Iterator[Module]:
    rules = [(_OF_RULE[rule.type], rule.globs) for rule in project.rules]
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        if name.startswith(f"{VENDORED}/"):
            continue
        for content_type, globs in (*rules, *_RULES):
            if any(matches(name, glob) for glob in globs):
                yield Module(name=name, content=path.read_bytes(), content_type=content_type)
                break


def _vendored(project: Project) -> Iterator[Module]:
    folder = project.root / VENDORED
    for path in _walk(folder):
        inside = path.relative_to(folder).as_posix()
        name = f"{VENDORED}/{inside}"
        if not any(
            matches(inside, glob) or matches(name, glob) for glob in project.python_modules.exclude
        ):
            content_type = PYTHON if path.suffix == ".py" else DATA
            yield Module(name=name, content=path.read_bytes(), content_type=content_type)


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _goes_along(Path(parent, name)))
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _goes_along(folder: Path) -> bool:
    return (
        not folder.name.startswith(".")
        and folder.name not in _NEVER
        and not (folder / "pyvenv.cfg").exists()
    )


def _order(module: Module) -> tuple[bool, str]:
    return module.is_vendored, module.name


def _too_large(bundle: Bundle) -> str:
    largest = sorted(bundle.modules, key=lambda module: len(module.content), reverse=True)[:5]
    listed = "\n".join(f"  {len(each.content) / 1048576:8.2f} MiB  {each.name}" for each in largest)
    return (
        f"the worker's files have {bundle.num_bytes / 1048576:.2f} MiB; the limit is "
        f"{MAX_BYTES >> 20} MiB. The largest:\n{listed}\n"
        "Take out what it does not need, or keep it in KV."
    )
