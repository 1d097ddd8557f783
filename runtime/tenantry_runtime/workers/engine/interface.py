"""What an engine needs of isolates and their processes; tests have some without processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio

from tenantry_runtime.workers.frames import Loaded
from tenantry_runtime.workers.interface import HttpRequest, HttpResponse, Invocation
from tenantry_runtime.workers.isolate import Attendant, Ending, HeldUp
from tenantry_runtime.workers.spec import WorkerVersion


class RunnableIsolate(Protocol):
    """`isolate.Isolate`, as far as an engine uses it; its contracts are there."""

    ended: anyio.Event

    @property
    def ending(self) -> Ending | None: ...

    @property
    def held_up(self) -> HeldUp | None: ...

    @property
    def num_signs(self) -> int: ...

    async def load(
        self,
        version: WorkerVersion,
        files: Iterable[tuple[str, bytes]],
        values: Mapping[str, object],
    ) -> Loaded: ...

    def fetch(
        self,
        request: HttpRequest,
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> AbstractAsyncContextManager[HttpResponse]: ...

    async def scheduled(
        self,
        cron: str,
        scheduled_ms: int,
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> None: ...

    async def rpc(
        self,
        method: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        invocation: Invocation,
        attendant: Attendant,
        *,
        deadline_s: float | None = None,
    ) -> object: ...

    def stop(self, attendant: Attendant) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a process ended; both None: nobody could tell."""

    status: int | None = None
    signal: int | None = None


class IsolateProcess(Protocol):
    """The process of an isolate."""

    @property
    def pid(self) -> int: ...

    def cpu_ns(self) -> int:
        """Return its CPU time, of all threads; that of its last look once it has ended."""
        ...

    def unread_bytes(self) -> int:
        """Return how much of what it was sent it has not read."""
        ...

    def inquire(self) -> None:
        """Ask it what keeps it from reading: its isolate's `held_up`, if it can answer."""
        ...

    def kill(self) -> None:
        """End it, if it has not ended."""
        ...

    async def wait(self) -> Exit:
        """Return when it has ended, and how."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """A blank isolate in its process."""

    isolate: RunnableIsolate
    process: IsolateProcess


@dataclass(frozen=True, slots=True)
class TemplateKey:
    """Which isolates may come of one template."""

    dependencies: str = ""
    """Digest of the set that they start with; "": none."""
    tenant: str = ""
    """The only one that it serves; "": any."""


class Nursery(Protocol):
    """Where blank isolates come from."""

    def spawn(
        self, key: TemplateKey, *, memory_bytes: int, outside: Attendant
    ) -> AbstractAsyncContextManager[Confined]:
        """Make one, confined already; leaving the scope ends its process.

        `outside` answers what the isolate asks in no invocation. Raises `SpawnFailed`.
        """
        ...

    def tidy(self, now_s: float) -> None:
        """End what has not been needed for long; called every second or so."""
        ...
