"""The last of each worker's invocations, kept below the edge's state directory.

| file | what |
|---|---|
| `ACCOUNT/WORKER.jsonl` | the newest records, a line of `trace` each; written in batches |
| `ACCOUNT/WORKER.1.jsonl` | those before, once the first is full |
| a line `{"dropped": N, "eventTimestamp": MS}` | records that were too many to keep, up to then |

All is bounded: records a second and worker, bytes of a file, age, and bytes of everything together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

import anyio
import anyio.to_thread
import msgspec
from msgspec import Meta

from tenantry_runtime.background import background_tasks
from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.interface import Record
from tenantry_runtime.workers.outcome import Outcome

from .files import LogPage, append, forget, read_page, sweep
from .trace import encoded

FLUSH_S = 1.0
SWEEP_S = 60.0

Positive: TypeAlias = Annotated[int, Meta(ge=1)]

_Key: TypeAlias = tuple[TenantId, str]

_log = logging.getLogger(__name__)

__all__ = ["KeptLogs", "LogLimits", "LogPage", "open_logs"]


class LogLimits(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """How much an edge keeps of what workers did and said."""

    records_per_s: Positive = 100
    """Of a worker; more are counted and dropped."""
    plain_records_per_s: Positive = 10
    """Of those, the ones that went well and said nothing."""
    file_bytes: Positive = 1 << 20
    """Of a worker's newer file; the older one has as much."""
    account_bytes: Positive = 64 << 20
    """Of all workers of an account; the longest untouched files go."""
    total_bytes: Positive = 512 << 20
    """Of all accounts, likewise."""
    max_age_s: Annotated[float, Meta(gt=0)] = 7 * 86400.0


@asynccontextmanager
async def open_logs(
    directory: Path,
    limits: LogLimits | None = None,
    *,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[KeptLogs]:
    """Keep logs for the duration of the context; leaving it writes what is not yet written."""
    logs = KeptLogs(directory, limits or LogLimits(), clock=clock)
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(logs.run)
            yield logs
    finally:
        with anyio.CancelScope(shield=True):
            # short: a second's records
            await logs.try_flush()


@dataclass(slots=True, eq=False)
class _Worker:
    """What is known of a worker that has records to write, or had some in this second."""

    second: int = 0
    num_kept: int = 0
    num_plain: int = 0
    num_dropped: int = 0
    num_bytes: int = 0
    """That wait to be written."""
    lines: list[bytes] = field(default_factory=list)


class KeptLogs:
    """Takes records at any rate, and writes some of them from time to time."""

    def __init__(
        self, directory: Path, limits: LogLimits, *, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` returns Unix time."""
        self._directory = directory
        self._limits = limits
        self._clock = clock
        self._workers: dict[_Key, _Worker] = {}
        self._lock = anyio.Lock()

    def keep(self, record: Record) -> bytes | None:
        """Take a record; never waits. Returns its line, None where that was not printed."""
        key = (record.version.tenant, record.version.worker)
        worker = self._workers.get(key)
        if worker is None:
            worker = self._workers[key] = _Worker()
        if (second := int(self._clock())) != worker.second:
            worker.second, worker.num_kept, worker.num_plain = second, 0, 0
        is_plain = record.outcome is Outcome.OK and not record.logs and not record.errors
        limits = self._limits
        if worker.num_kept >= limits.records_per_s or (
            is_plain and worker.num_plain >= limits.plain_records_per_s
        ):
            worker.num_dropped += 1
            return None
        worker.num_kept += 1
        line = encoded(record)
        if worker.num_bytes + len(line) >= limits.file_bytes:
            worker.num_dropped += 1
            return line
        worker.num_plain += is_plain
        worker.num_bytes += len(line) + 1
        worker.lines.append(line)
        return line

    async def run(self) -> None:
        """Write and clear away until canceled."""
        next_sweep_s = 0.0
        while True:
            await anyio.sleep(FLUSH_S)
            await self.try_flush()
            if anyio.current_time() >= next_sweep_s:
                next_sweep_s = anyio.current_time() + SWEEP_S
                try:
                    await self.sweep()
                except OSError as error:
                    _log.error("cannot clear workers' logs away: %s", error)

    async def try_flush(self) -> None:
        """Write what waits, if it can be written: a full disk takes logs, not the edge."""
        try:
            await self.flush()
        except OSError as error:
            _log.error("cannot keep workers' logs: %s", error)

    async def flush(self) -> None:
        """Write what waits. Raises `OSError`, and then what waited is lost."""
        async with self._lock:
            now_ms = int(self._clock() * 1000)
            taken = {key: _taken(worker, now_ms) for key, worker in self._workers.items()}
            self._workers = {key: worker for key, worker in self._workers.items() if taken[key]}
            written = {key: lines for key, lines in taken.items() if lines}
            if written:
                await anyio.to_thread.run_sync(self._write, written)

    async def read(
        self,
        tenant: TenantId,
        worker: str,
        *,
        limit: int = 100,
        since_ms: int = 0,
        outcomes: frozenset[str] | None = None,
        search: str | None = None,
    ) -> LogPage:
        """Return the newest records of a worker, oldest first: at most `limit`, none older than `since_ms`."""
        await self.try_flush()
        since_ms = max(since_ms, int((self._clock() - self._limits.max_age_s) * 1000))
        return await anyio.to_thread.run_sync(
            lambda: read_page(
                self._directory,
                tenant,
                worker,
                limit=limit,
                since_ms=since_ms,
                outcomes=outcomes,
                search=search,
            )
        )

    async def forget(self, tenant: TenantId, worker: str) -> None:
        """Delete what is kept of a worker."""
        async with self._lock:
            self._workers.pop((tenant, worker), None)
            await anyio.to_thread.run_sync(forget, self._directory, tenant, worker)

    async def sweep(self) -> None:
        """Delete what is too old or too much. Raises `OSError`."""
        oldest_s = self._clock() - self._limits.max_age_s
        async with self._lock:
            limits = self._limits
            await anyio.to_thread.run_sync(
                sweep, self._directory, oldest_s, limits.account_bytes, limits.total_bytes
            )

    def _write(self, lines: dict[_Key, list[bytes]]) -> None:
        for (tenant, worker), some in lines.items():
            append(self._directory, tenant, worker, some, self._limits.file_bytes)


def _taken(worker: _Worker, now_ms: int) -> list[bytes]:
    lines, worker.lines, worker.num_bytes = worker.lines, [], 0
    if worker.num_dropped:
        lines.append(b'{"dropped":%d,"eventTimestamp":%d}' % (worker.num_dropped, now_ms))
        worker.num_dropped = 0
    return lines
