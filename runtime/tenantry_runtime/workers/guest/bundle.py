"""The worker's files as modules, packages and their data: in memory, whatever the disk has.

| path of the bundle | in Python |
|---|---|
| `entry.py`, `chat/__init__.py` | below `ROOT`, the first of `sys.path` |
| `python_modules/...` | below `ROOT/python_modules`, the second |
| `python_modules/x-1.0.dist-info/METADATA` | what `importlib.metadata` knows of `x` |
| `page.html`, `chat/words.txt` | what `importlib.resources` finds; where `/tmp` is the isolate's own, files too |

Tracebacks and `inspect` find their lines by the loader.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources.abc import TraversableResources
from pathlib import PurePosixPath
from types import CodeType, ModuleType

from .resources import Resource

ROOT = "/tmp/worker"
VENDORED = "python_modules"
MAX_WRITTEN_BYTES = 8 << 20
"""Of data: half of what `/tmp` holds, which counts as memory."""


def relative(filename: str) -> str:
    """Return a file's path in the bundle."""
    return filename.removeprefix(f"{ROOT}/")


class Bundle:
    """The files, by their paths; complete before anything is imported."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self._folders: frozenset[str] = frozenset()
        self._pieces: dict[str, bytearray] = {}

    def add(self, path: str, piece: bytes) -> None:
        """Take a piece of a file, in order."""
        self._pieces.setdefault(path, bytearray()).extend(piece)

    def install(self, main_module: str, *, has_vendored: bool) -> None:
        """Make the files importable: the main module's folder, and what is vendored."""
        self.files = {path: bytes(content) for path, content in self._pieces.items()}
        self._folders = frozenset(
            str(folder) for path in self.files for folder in PurePosixPath(path).parents
        )
        self._pieces.clear()
        folder = str(PurePosixPath(ROOT, main_module).parent)
        # the first process of a namespace: what is mounted for it is nobody else's
        if os.getpid() == 1 and write_data(self.files, ROOT):
            os.makedirs(folder, exist_ok=True)
            os.chdir(folder)
        paths = [folder] + ([f"{ROOT}/{VENDORED}"] if has_vendored else [])
        sys.path[:0] = paths
        for path in paths:
            sys.path_importer_cache.pop(path, None)
        sys.path_hooks.insert(0, self._finder)
        sys.meta_path.append(Distributions(self.files))

    def import_main(self, main_module: str) -> ModuleType:
        """Run the main module, under its own name. Raises what it raises."""
        if main_module not in self.files:
            raise ModuleNotFoundError(f"the bundle has no {main_module!r}", name=main_module)
        name = PurePosixPath(main_module).stem
        loader = Loader(self.files, name, main_module, is_package=False)
        spec = importlib.util.spec_from_loader(name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
        return module

    def _finder(self, path: str) -> importlib.abc.PathEntryFinder:
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise ImportError(path)
        return FolderFinder(self.files, self._folders, relative(path + "/").rstrip("/"))


def write_data(files: Mapping[str, bytes], root: str) -> bool:
    """Write what is no module, for those who open it beside `__file__`; return whether any was.

    Nothing is, where it is too much.
    """
    data = {path: content for path, content in files.items() if not path.endswith(".py")}
    if sum(map(len, data.values())) > MAX_WRITTEN_BYTES:
        return False
    for path, content in data.items():
        place = f"{root}/{path}"
        os.makedirs(place.rpartition("/")[0], exist_ok=True)
        with open(place, "wb") as file:
            file.write(content)
    return bool(data)


class FolderFinder(importlib.abc.PathEntryFinder):
    """Finds the modules of one folder."""

    def __init__(self, files: Mapping[str, bytes], folders: frozenset[str], folder: str) -> None:
        self._files = files
        self._folders = folders
        self._prefix = f"{folder}/" if folder else ""

    def find_spec(
        self, fullname: str, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        path = self._prefix + fullname.rpartition(".")[2]
        for file, is_package in ((f"{path}/__init__.py", True), (f"{path}.py", False)):
            if file in self._files:
                loader = Loader(self._files, fullname, file, is_package=is_package)
                return importlib.util.spec_from_loader(fullname, loader)
        if path in self._folders:
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [f"{ROOT}/{path}"]
            return spec
        return None

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """Say what `pkgutil.iter_modules` asks."""
        names: dict[str, bool] = {}
        for file in self._files:
            if not file.startswith(self._prefix):
                continue
            head, _, rest = file[len(self._prefix) :].partition("/")
            if rest == "__init__.py":
                names[head] = True
            elif not rest and head.endswith(".py") and head != "__init__.py":
                names.setdefault(head[:-3], False)
        for name, is_package in sorted(names.items()):
            yield prefix + name, is_package


class Loader(importlib.abc.ExecutionLoader):
    """Loads one module of the bundle."""

    def __init__(
        self, files: Mapping[str, bytes], name: str, path: str, *, is_package: bool
    ) -> None:
        self._files = files
        self._name = name
        self._path = path
        self._is_package = is_package

    def is_package(self, fullname: str) -> bool:
        return self._is_package

    def get_filename(self, fullname: str) -> str:
        return f"{ROOT}/{self._path}"

    def get_data(self, path: str) -> bytes:
        """Return a file's bytes, for `pkgutil.get_data`."""
        try:
            return self._files[relative(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._files[self._path])

    def get_code(self, fullname: str) -> CodeType:
        return compile(
            self._files[self._path], self.get_filename(fullname), "exec", dont_inherit=True
        )

    def get_resource_reader(self, fullname: str) -> TraversableResources | None:
        """Return what `importlib.resources` reads a package's files by."""
        return Resources(self._files, self._path.rpartition("/")[0]) if self._is_package else None


class Resources(TraversableResources):
    """The files of a package."""

    def __init__(self, files: Mapping[str, bytes], folder: str) -> None:
        self._folder = Resource(files, folder)

    def files(self) -> Resource:
        return self._folder


_METADATA = re.compile(rf"{VENDORED}/(?P<stem>[^/]+)\.(dist|egg)-info/(METADATA|PKG-INFO)")


class Distributions(importlib.metadata.DistributionFinder):
    """Finds the metadata of what is vendored; it finds no modules."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return None

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        wanted = None if context is None or context.name is None else _normalized(context.name)
        for path in self.files:
            match = _METADATA.fullmatch(path)
            if match and wanted in (None, _normalized(match["stem"].partition("-")[0])):
                yield Distribution(self.files, path.rpartition("/")[0])


class Distribution(importlib.metadata.Distribution):
    """One vendored distribution."""

    def __init__(self, files: Mapping[str, bytes], folder: str) -> None:
        self._files = files
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        content = self._files.get(f"{self._folder}/{filename}")
        return None if content is None else content.decode()

    def locate_file(self, path: object) -> PurePosixPath:  # type: ignore[override]  # no real path
        return PurePosixPath(ROOT, VENDORED, str(path))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
