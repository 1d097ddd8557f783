"""Bytes of bundles' files, kept for the next isolate of a version."""

from __future__ import annotations

from collections.abc import Mapping

from tenantry_runtime.workers.interface import Bundles
from tenantry_runtime.workers.spec import SourceFile, WorkerVersion


class BundleCache:
    """Reads files once while they are in use. They are immutable, and known by their digests."""

    def __init__(self, bundles: Bundles, *, max_bytes: int) -> None:
        self._bundles = bundles
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: dict[str, bytes] = {}
        """By digest, the one least recently read first."""

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    async def read(self, version: WorkerVersion) -> Mapping[str, bytes]:
        """Return a version's files by path. What the blob store raises passes through."""
        return {file.path: await self._read(file) for file in version.files}

    async def _read(self, file: SourceFile) -> bytes:
        if file.digest in self._kept:
            return self._touch(file.digest)
        content = await self._bundles.read(file)
        # somebody else may have read it meanwhile
        if file.digest not in self._kept and len(content) <= self._max_bytes:
            self._kept[file.digest] = content
            self._num_bytes += len(content)
            while self._num_bytes > self._max_bytes:
                oldest = next(iter(self._kept))
                self._num_bytes -= len(self._kept.pop(oldest))
        return content

    def _touch(self, digest: str) -> bytes:
        content = self._kept.pop(digest)
        self._kept[digest] = content
        return content
