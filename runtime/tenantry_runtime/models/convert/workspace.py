"""Where a conversion writes: beside its destination, until all is there.

| path | what |
|---|---|
| DESTINATION.partial/ | finished files, and a manifest that lists them |
| DESTINATION.partial/FILE.tmp | the file that is being written |
| DESTINATION/ | the whole, by one rename |

A file is listed after it is on the disk under its name, so whatever is listed may be kept.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tenantry_runtime.durable import sync
from tenantry_runtime.errors import ConversionError, NotEnoughSpace

from .manifest import (
    MANIFEST_FILE,
    FileRecord,
    Manifest,
    encode_manifest,
    is_intact,
    read_manifest,
    record,
)

_TEMPORARY = ".tmp"


class Workspace:
    """The files of one conversion that is under way; one process at a time has it."""

    def __init__(self, destination: Path, manifest: Manifest) -> None:
        self.directory = destination.with_name(destination.name + ".partial")
        self._destination = destination
        self._manifest = manifest

    @classmethod
    @contextmanager
    def open(cls, destination: Path, manifest: Manifest) -> Iterator[Workspace]:
        """Take up what an earlier run left, or begin; raise ConversionError if that is impossible."""
        workspace = cls(destination, manifest)
        with workspace._failures_named():
            workspace.directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(workspace.directory, os.O_RDONLY)
        try:
            with workspace._failures_named():
                workspace._lock(lock)
                workspace._take_up()
            yield workspace
        finally:
            os.close(lock)

    def keeps(self, file: str) -> bool:
        """Say whether an earlier run finished this file and it is still as it was then."""
        expected = self._manifest.files.get(file)
        with self._failures_named():
            return expected is not None and is_intact(self.directory / file, expected)

    def size_bytes(self, file: str) -> int:
        """Return the size of a finished file."""
        return self._manifest.files[file].size_bytes

    def require_space(self, needed_bytes: int) -> None:
        """Raise NotEnoughSpace unless the disk has so much left."""
        free_bytes = shutil.disk_usage(self.directory).free
        if free_bytes < needed_bytes:
            raise NotEnoughSpace(str(self.directory), needed_bytes, free_bytes)

    @contextmanager
    def writing(self, file: str) -> Iterator[Path]:
        """Give the path to write a file at; it gets its name when the block ends without an error."""
        path = self.directory / (file + _TEMPORARY)
        try:
            with self._failures_named():
                yield path
                written = record(path)
                path.rename(self.directory / file)
                self._list(file, written)
        finally:
            path.unlink(missing_ok=True)

    def publish(self) -> Manifest:
        """Give the whole its name; raise ConversionError if something else took it meanwhile."""
        with self._failures_named():
            self._save(msgspec.structs.replace(self._manifest, is_complete=True))
            # replaces an empty directory, and nothing else
            self.directory.rename(self._destination)
            sync(self._destination.parent)
        return self._manifest

    def _lock(self, directory: int) -> None:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConversionError(
                str(self.directory), "another conversion is writing here; wait for it, or end it"
            ) from error

    def _take_up(self) -> None:
        found = read_manifest(self.directory)
        if found is None:
            # a run that ended before its first manifest had its name
            if any(entry.name != MANIFEST_FILE + _TEMPORARY for entry in self.directory.iterdir()):
                raise ConversionError(
                    str(self.directory), "is no conversion that was cut off; remove it, or move it"
                )
        elif (difference := found.difference(self._manifest)) is not None:
            raise ConversionError(
                str(self.directory),
                f"holds another conversion that was cut off ({difference}); finish that one with "
                "its own source and options, or remove the directory",
            )
        else:
            self._manifest = msgspec.structs.replace(self._manifest, files=found.files)
        for entry in self.directory.iterdir():
            if entry.name not in {MANIFEST_FILE, *self._manifest.files}:
                entry.unlink()
        self._save(self._manifest)

    def _list(self, file: str, written: FileRecord) -> None:
        files = {**self._manifest.files, file: written}
        self._save(msgspec.structs.replace(self._manifest, files=files))

    def _save(self, manifest: Manifest) -> None:
        path = self.directory / (MANIFEST_FILE + _TEMPORARY)
        with path.open("wb") as stream:
            stream.write(encode_manifest(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        path.rename(self.directory / MANIFEST_FILE)
        sync(self.directory)
        self._manifest = manifest

    @contextmanager
    def _failures_named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NotEnoughSpace(str(self.directory), None, None) from error
            raise ConversionError(
                str(error.filename or self.directory),
                f"cannot be used: {error.strerror or error}",
            ) from error
