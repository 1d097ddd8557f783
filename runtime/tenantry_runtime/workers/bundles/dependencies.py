"""Sets of dependencies: resolved once when a worker is deployed, installed where its isolates start.

A set is known by the digest of its lock and of what it is for; the lock is kept with the worker's
version, so that every edge, and every later start, has the same bytes.

| below `dependencies/` of the state directory | |
|---|---|
| `DIGEST/` | packages, unpacked; never written again |
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import DependenciesMissing
from tenantry_runtime.workers.spec import LockedPackage

from .requirements import read_requirements
from .resolver import Resolver

FOLDER = "dependencies"
MAX_AT_ONCE = 2
"""Runs of pip: a deploy is no reason for the answers of a model to stutter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencySet:
    """What a version's isolates start with."""

    digest: str
    """`""` where there is nothing."""
    lock: tuple[LockedPackage, ...] = ()


class Dependencies:
    """Resolves and installs; safe to share between tasks."""

    def __init__(self, state_dir: Path, resolver: Resolver, *, is_shared: bool = True) -> None:
        """`is_shared`: tenants whose sets are the same start from the same template."""
        self._folder = state_dir / FOLDER
        self._resolver = resolver
        self._is_shared = is_shared
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._locks: dict[str, anyio.Lock] = {}

    async def resolve(self, tenant: TenantId, asked: Sequence[str]) -> DependencySet:
        """Lock and install what a worker asks for. Raises `DependenciesRefused`."""
        wanted = read_requirements(asked)
        async with self._limiter:
            lock = await self._resolver.lock(wanted)
        found = DependencySet(digest=self._digest(tenant, lock), lock=lock)
        await self.ensure(found)
        return found

    async def ensure(self, wanted: DependencySet) -> None:
        """Install a set that another edge has resolved, if it is not here."""
        if not wanted.digest or self._directory(wanted.digest).is_dir():
            return
        # a set that is being installed is waited for, not installed twice
        own = self._locks.setdefault(wanted.digest, anyio.Lock())
        async with own, self._limiter:
            if not self._directory(wanted.digest).is_dir():
                await self._resolver.install(wanted.lock, self._directory(wanted.digest))

    def directory(self, digest: str) -> str:
        """Return where a set is. Raises `DependenciesMissing` where it was not installed."""
        directory = self._directory(digest)
        if not directory.is_dir():
            raise DependenciesMissing(digest)
        return str(directory)

    def _directory(self, digest: str) -> Path:
        return self._folder / digest

    def _digest(self, tenant: TenantId, lock: tuple[LockedPackage, ...]) -> str:
        if not lock:
            return ""
        whose = "" if self._is_shared else tenant
        described = msgspec.json.encode((self._resolver.python, whose, lock))
        return hashlib.sha256(described).hexdigest()
