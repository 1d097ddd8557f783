"""What the control plane's routes work with; made by the process's composition root."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import Authenticator, Store
from tenantry_runtime.tenancy.kv import KeyValues
from tenantry_runtime.tenancy.workers import WorkerStore
from tenantry_runtime.workers.spec import LockedPackage, WorkerVersion

from .upload_slots import UploadSlots


class StartUpCheck(Protocol):
    """Imports a version once: `workers.interface.Engine`."""

    async def try_load(self, version: WorkerVersion, *, cpu_ms: float = 1000.0) -> float:
        """Return the CPU time in milliseconds; raises `LoadError` with the tenant's file and line."""
        ...


class DependencySet(Protocol):
    """A set of dependencies."""

    @property
    def digest(self) -> str: ...
    @property
    def lock(self) -> tuple[LockedPackage, ...]: ...


class Dependencies(Protocol):
    """Makes sets of dependencies: `workers.bundles`."""

    async def resolve(self, tenant: TenantId, asked: Sequence[str]) -> DependencySet:
        """Return a set that has what is asked for (PEP 508), made now or before.

        Raises `DependenciesRefused`: it is shown to the tenant.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TailAddress:
    """Where a tail is listened to."""

    id: str
    url: str
    """`ws://…` or `wss://…`; whoever knows it may listen."""
    expires_ms: int
    """Unix time."""


class Tails(Protocol):
    """Lets clients listen to what workers do: `workers.logs`. A tail is of this edge."""

    async def open(
        self,
        account: TenantId,
        worker: str,
        # Any: JSON as the client has it
        filters: Sequence[Mapping[str, Any]],
        *,
        base_url: str,
        client_ip: str,
    ) -> TailAddress:
        """Make a tail; `base_url` is that of the request, without a slash at its end.

        Raises `InvalidInput` for a filter, `CapacityExceeded` where too many listen.
        """
        ...

    async def close(self, account: TenantId, worker: str, tail_id: str) -> bool:
        """End a tail; False if the worker has none of the id."""
        ...


class Logs(Protocol):
    """What is kept of what workers did and said: `workers.logs`."""

    async def forget(self, tenant: TenantId, worker: str) -> None:
        """Delete what is kept of a worker. Raises `OSError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What isolates run."""

    path: str = sys.executable
    version: str = field(default_factory=platform.python_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLimits:
    """Of uploads."""

    upload_bytes: int = 64 << 20
    """Of all modules together."""
    modules: int = 5_000
    """Files with those that are vendored."""
    upload_timeout_s: float = 120.0
    """From a request's headers to its last byte."""
    startup_cpu_ms: float = 1000.0
    """That an import may take."""
    body_bytes: int = 1 << 20
    """Of a request that is JSON."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlServices:
    """Shared by all requests to the control plane of an edge."""

    authenticator: Authenticator
    store: Store
    workers: WorkerStore
    kv: KeyValues
    startup: StartUpCheck
    tails: Tails | None = None
    """None: this edge has none."""
    logs: Logs | None = None
    """None: nothing is kept here."""
    dependencies: Dependencies | None = None
    """None: what a worker depends on comes vendored."""
    interpreter: Interpreter = field(default_factory=Interpreter)
    limits: ControlLimits = field(default_factory=ControlLimits)
    changed: Callable[[TenantId], None] = lambda account: None
    """Hears whose workers somebody has changed here."""
    uploads: UploadSlots = field(default_factory=UploadSlots)
    """Each that is held may take `ControlLimits.upload_bytes`."""
