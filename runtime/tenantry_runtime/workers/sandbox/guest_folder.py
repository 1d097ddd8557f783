"""The folder of an isolate's own modules: copies of the few that it needs, and of nothing beside them.

| in the folder | from |
|---|---|
| `guest/msgspec` | the interpreter's packages |
| `guest/tenantry/{__init__,_version}.py`, `guest/tenantry/workers` | the SDK |
| `guest/tenantry_runtime/workers/{__init__,frames}.py`, `.../guest` | the runtime |
| `library` | without namespaces: links to the standard library, without its `site-packages` |
| `root` | empty, to mount at |
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .interpreter import Interpreter

PACKAGES_OF_OTHERS = ("site-packages", "dist-packages")
"""Folders of a standard library that are not part of it."""

_PREFIX = "tenantry-template-"
# between the making of a folder and its lock
_UNLOCKED_S = 60.0
_SDK_PARTS = ("__init__.py", "_version.py", "workers")
_RUNTIME_PARTS = ("__init__.py", "workers/__init__.py", "workers/frames.py", "workers/guest")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestCode:
    """What runs in an isolate."""

    module: str = "tenantry_runtime.workers.guest"
    """Has `preload()`, called in the template, and `serve(socket)`, which never returns."""
    files: tuple[Path, ...] = ()
    """Modules beside the usual ones."""


@contextmanager
def guest_folder(interpreter: Interpreter, code: GuestCode, parent: str | None) -> Iterator[Path]:
    """Make the folder in `parent`, or where temporary files are; remove it at the end.

    Folders of runtimes that were killed are removed, too: whoever lives holds a lock of its own.
    """
    parent = parent or tempfile.gettempdir()
    _remove_left_behind(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as made, _locked(made):
        folder = Path(made)
        # isolates may be users of their own; what is in it is everybody's to read
        folder.chmod(0o711)
        guest = folder / "guest"
        _copy(Path(interpreter.msgspec_folder), guest / "msgspec")
        for part in _SDK_PARTS:
            _copy(_package("tenantry") / part, guest / "tenantry" / part)
        for part in _RUNTIME_PARTS:
            _copy(_package("tenantry_runtime") / part, guest / "tenantry_runtime" / part)
        for file in code.files:
            _copy(file, guest / file.name)
        _let_others_read(guest)
        (folder / "root").mkdir()
        yield folder


def link_library(interpreter: Interpreter, folder: Path) -> list[str]:
    """Fill `library` with links; return what they point at."""
    library = folder / "library"
    library.mkdir()
    _let_others_read(library)
    targets: list[str] = []
    for entry in sorted(Path(interpreter.path[0]).iterdir()):
        if entry.name not in PACKAGES_OF_OTHERS:
            (library / entry.name).symlink_to(entry)
            targets.append(str(entry))
    return targets


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def _remove_left_behind(parent: str) -> None:
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        try:
            found = folder.lstat()
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _UNLOCKED_S:
                with _locked(str(folder)):
                    shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            # another's, alive, or just gone
            continue


def _let_others_read(folder: Path) -> None:
    """Whatever the runtime's umask is, and whatever folders were copied."""
    for path in (folder, *folder.rglob("*/")):
        path.chmod(0o755)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_copy_file)
    else:
        _copy_file(str(source), str(target))
        _copy_bytecode(source, target)


def _copy_bytecode(source: Path, target: Path) -> None:
    """Compiled code is found by the source's time and size, which copies keep."""
    for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        (target.parent / "__pycache__").mkdir(exist_ok=True)
        _copy_file(str(compiled), str(target.parent / "__pycache__" / compiled.name))


def _copy_file(source: str, target: str) -> str:
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)
    times = os.stat(source)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
    return target


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None
    return Path(found.origin).parent
