"""Files of the bundle as `importlib.resources` sees them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import IO, Any


class Resource(Traversable):
    """A file or a folder, or neither, of the bundle."""

    def __init__(self, files: Mapping[str, bytes], path: str) -> None:
        self._files = files
        self._path = path

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    def __str__(self) -> str:
        return self._path

    def iterdir(self) -> Iterator[Resource]:
        prefix = self._prefix()
        heads = {
            path[len(prefix) :].partition("/")[0] for path in self._files if path.startswith(prefix)
        }
        for head in sorted(heads):
            yield Resource(self._files, prefix + head)

    def is_dir(self) -> bool:
        return any(path.startswith(self._prefix()) for path in self._files)

    def is_file(self) -> bool:
        return self._path in self._files

    def joinpath(self, *descendants: Any) -> Resource:
        parts = [part for name in descendants for part in str(name).split("/") if part != "."]
        path = [part for part in self._path.split("/") if part]
        for part in parts:
            if part == "..":
                path = path[:-1]
            elif part:
                path.append(part)
        return Resource(self._files, "/".join(path))

    def __truediv__(self, child: Any) -> Resource:
        return self.joinpath(child)

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        content = io.BytesIO(self.read_bytes())
        if mode == "rb":
            return content
        if mode != "r":
            raise ValueError(f"{self._path} can be read only; it was opened with mode {mode!r}")
        return io.TextIOWrapper(content, *args, **kwargs)

    def read_bytes(self) -> bytes:
        try:
            return self._files[self._path]
        except KeyError:
            raise FileNotFoundError(self._path) from None

    def read_text(self, encoding: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8")

    def _prefix(self) -> str:
        return f"{self._path}/" if self._path else ""
