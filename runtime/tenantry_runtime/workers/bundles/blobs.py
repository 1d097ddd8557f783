"""Bundles' files as an edge reads them: out of the store, and from its own disk the next time.

What is below the directory:

| path | what |
|---|---|
| `blobs/<two letters>/<digest>` | the bytes that have that SHA-256, complete, mode 0600 |

Nothing read is believed: bytes from the disk and from the store are compared with their digest.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.tenancy.workers import BlobStore
from tenantry_runtime.workers.spec import SourceFile

BLOBS = "blobs"

MAX_CACHED_BYTES = 1 << 30
"""On an edge's disk; what was used longest ago goes first, and comes from the store again."""

_log = logging.getLogger(__name__)


class BundleStatistics(NamedTuple):
    """What the cache on the disk has."""

    num_files: int
    num_bytes: int


class StoredBundles:
    """`workers.interface.Bundles` over a store. Several processes may share a directory."""

    def __init__(
        self,
        blobs: BlobStore,
        directory: Path,
        *,
        dependencies: Callable[[str], str],
        max_cached_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        """`dependencies` says where a set is (`Dependencies.directory`).

        Raises `ConfigurationError` for a directory that cannot be used.
        """
        self._dependencies = dependencies
        self._blobs = blobs
        self._directory = directory
        self._max_cached_bytes = max_cached_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Of the cached files by digest, the one used longest ago first."""
        self._num_bytes = 0
        try:
            for _, digest, num_bytes in self._found():
                self._note(digest, num_bytes)
        except OSError as error:
            raise ConfigurationError(f"{directory} is unusable: {error.strerror}") from error

    def statistics(self) -> BundleStatistics:
        return BundleStatistics(len(self._sizes), self._num_bytes)

    async def read(self, file: SourceFile) -> bytes:
        """Return a file's bytes, compared with their digest; raise `NoSuchRecord`.

        Raises `ConfigurationError` where the store has other bytes under the digest.
        """
        cached = await anyio.to_thread.run_sync(self._load, file.digest)
        if cached is not None:
            self._note(file.digest, len(cached))
            return cached
        content = await self._blobs.get(file.digest)
        if not _is(content, file.digest):
            raise ConfigurationError(
                f"the store's file {file.digest} of {file.path!r} was altered there: deploy again"
            )
        if len(content) <= self._max_cached_bytes:
            await anyio.to_thread.run_sync(self._keep, file.digest, content)
            self._note(file.digest, len(content))
            await self._evict()
        return content

    def dependencies(self, digest: str) -> str:
        """Return the directory of a set of dependencies; raise `DependenciesMissing`."""
        return self._dependencies(digest)

    def _path(self, digest: str) -> Path:
        return self._directory / BLOBS / digest[:2] / digest

    def _found(self) -> list[tuple[float, str, int]]:
        """Return when each cached file was used, its digest and its size, the one used longest ago first."""
        root = self._directory / BLOBS
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # a name that begins with a dot is a file that was not finished
        files = (path for path in root.glob("*/*") if not path.name.startswith("."))
        status = ((path.name, path.stat()) for path in files)
        return sorted((each.st_mtime, digest, each.st_size) for digest, each in status)

    def _note(self, digest: str, num_bytes: int) -> None:
        self._num_bytes += num_bytes - self._sizes.pop(digest, 0)
        self._sizes[digest] = num_bytes

    def _load(self, digest: str) -> bytes | None:
        try:
            content = self._path(digest).read_bytes()
        except OSError:
            # not there, or not any more: another process has this directory too
            return None
        if _is(content, digest):
            return content
        _log.warning("%s is not what it should be; it is read from the store", self._path(digest))
        return None

    def _keep(self, digest: str, content: bytes) -> None:
        path = self._path(digest)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, made = tempfile.mkstemp(dir=path.parent, prefix=".")
            try:
                with open(descriptor, "wb") as file:
                    file.write(content)
                os.replace(made, path)
            except BaseException:
                Path(made).unlink(missing_ok=True)
                raise
        except OSError as error:
            # a cache that cannot be written is slow, and no more
            _log.warning("cannot keep %s: %s", path, error)

    async def _evict(self) -> None:
        gone = []
        while self._num_bytes > self._max_cached_bytes:
            digest, num_bytes = self._sizes.popitem(last=False)
            self._num_bytes -= num_bytes
            gone.append(self._path(digest))
        for path in gone:
            await anyio.to_thread.run_sync(partial(path.unlink, missing_ok=True))


def _is(content: bytes, digest: str) -> bool:
    return sha256(content).hexdigest() == digest
