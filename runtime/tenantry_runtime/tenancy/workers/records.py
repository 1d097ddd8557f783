"""What the store tells of workers, and what it takes of a new version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy.secrets import Plaintext
from tenantry_runtime.workers.spec import (
    Binding,
    LockedPackage,
    SourceFile,
    WorkerLimits,
    WorkerVersion,
)


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for a worker whatever its version is."""

    tags: tuple[str, ...] = ()
    logpush: bool = False
    # Any: as the client has it; nothing here reads it
    observability: dict[str, Any] | None = None


class Notes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who made a version or a deployment, and why."""

    author: str = ""
    """Id of a token."""
    source: str = "api"
    """`wrangler`, `workerctl`, `api`."""
    message: str = ""
    triggered_by: str = ""
    """`upload`, `secret`, `rollback`: what made it; empty: nothing but whoever asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker, whatever its versions."""

    id: str
    """Never used again, unlike its name."""
    account: TenantId
    name: str
    created_ms: int
    modified_ms: int
    has_url: bool
    has_preview_urls: bool
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A version, and what is known of how it came about."""

    version: WorkerVersion
    notes: Notes
    num_bytes: int
    """Of its files."""
    startup_ms: float
    """CPU time that its import took when it was uploaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """What is uploaded; its files are in the blob store already."""

    main_module: str
    files: tuple[SourceFile, ...]
    bindings: tuple[Binding, ...] = ()
    secrets: Mapping[str, Plaintext] = field(default_factory=dict)
    """Values of those of `bindings` that are secrets and new."""
    keep_types: frozenset[str] = frozenset()
    """Kinds of bindings that come over from the version before, unless something has their name."""
    inherited: frozenset[str] = frozenset()
    """Names of bindings that come over from the version before."""
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    dependencies: str = ""
    lock: tuple[LockedPackage, ...] = ()
    isolation: Literal["isolate", "request"] = "isolate"
    keeps_environment: bool = False
    """Whether dependencies and isolation are those of the version before."""
    compatibility_date: str = ""
    compatibility_flags: tuple[str, ...] = ()
    tag: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the requests."""

    version_id: str
    percentage: float
    """More than 0, at most 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Which versions get which part of the requests; the latest is in force."""

    id: str
    number: int
    created_ms: int
    shares: tuple[Share, ...]
    notes: Notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What of a worker answers requests now."""

    worker: Worker
    deployment_id: str
    versions: tuple[tuple[WorkerVersion, float], ...]
    """With percentages that are 100 together."""

    def choose(self, entropy: float) -> WorkerVersion:
        """Return the version for a number from 0 (included) to 1 (not)."""
        place = entropy * 100
        for version, percentage in self.versions:
            place -= percentage
            if place < 0:
                return version
        # what rounding leaves
        return self.versions[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretListing:
    """What is told of a worker's secret without opening it."""

    name: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A pattern of host and path that leads to a worker."""

    id: str
    account: TenantId
    worker: str
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A cron trigger."""

    cron: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSchedule:
    """A cron trigger of a worker that has a deployment."""

    account: TenantId
    worker: str
    cron: str


def names_of(bindings: Sequence[Binding]) -> list[str]:
    """Return what bindings are called."""
    return [binding.name for binding in bindings]
