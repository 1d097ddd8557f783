"""A version gets into a blank isolate."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import anyio

from tenantry_runtime.workers.interface import (
    Bindings,
    CallContext,
    ErrorLine,
    Invocation,
    LoadError,
)
from tenantry_runtime.workers.isolate import IsolateEnded
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion

from .backoff import LoadFailure
from .bundle_cache import BundleCache
from .calls import Calls
from .interface import TemplateKey
from .lives import Lives
from .resident import Landlord, Resident
from .verdict import MEMORY_ERRORS, exceeded_cpu, exceeded_wall
from .watchdog import Watchdog


class NotLoaded(Exception):
    """A version's own fault: what its tenant is told."""

    def __init__(self, failure: LoadFailure, error: LoadError) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.error = error


class Loader:
    """Loads versions, each within a limit of CPU time and of time."""

    def __init__(
        self,
        *,
        lives: Lives,
        watchdog: Watchdog,
        bundles: BundleCache,
        bindings: Bindings,
        share_templates: bool,
        now: Callable[[], float],
        unix_ms: Callable[[], int],
    ) -> None:
        self._lives = lives
        self._watchdog = watchdog
        self._bundles = bundles
        self._bindings = bindings
        self._share_templates = share_templates
        self._now = now
        self._unix_ms = unix_ms

    async def load(
        self, version: WorkerVersion, landlord: Landlord, *, cpu_ms: float, wall_s: float
    ) -> tuple[Resident, float]:
        """Return an isolate with the version, and the CPU time of its import in milliseconds.

        Raises `NotLoaded`, `SpawnFailed`, and what the store of bundles or bindings raises.
        """
        files = await self._bundles.read(version)
        values = await self._bindings.values(version)
        tenant = "" if self._share_templates else version.tenant
        key = TemplateKey(version.dependencies, tenant)
        blank = await self._lives.obtain(key, version.limits.memory_bytes)
        resident = Resident(
            version, blank, landlord, now=self._now, unix_ms=self._unix_ms, load_cpu_ms=cpu_ms
        )
        blank.occupant = resident
        context = CallContext(version=version, invocation=Invocation(id=version.version_id))
        blank.outside.begin(Calls(self._bindings, context))
        self._watchdog.watch(resident)
        try:
            used_ms = await self._import(resident, files, values, cpu_ms=cpu_ms, wall_s=wall_s)
        except BaseException:
            blank.confined.process.kill()
            raise
        finally:
            self._watchdog.leave(resident)
        return resident, used_ms

    async def _import(
        self,
        resident: Resident,
        files: Mapping[str, bytes],
        values: Mapping[str, object],
        *,
        cpu_ms: float,
        wall_s: float,
    ) -> float:
        isolate = resident.confined.isolate
        try:
            with anyio.fail_after(wall_s):
                await isolate.load(resident.version, files.items(), values)
        except LoadError as error:
            told = _explained(error, resident.version)
            raise self._not_loaded(resident, Outcome.LOAD_FAILED, told) from error
        except TimeoutError:
            resident.accuse(exceeded_wall("the import", wall_s))
            await resident.buried.wait()
        except IsolateEnded:
            await resident.buried.wait()
        else:
            used_ms = resident.end_load()
            if used_ms <= cpu_ms:
                return used_ms
            resident.condemn(exceeded_cpu("the import", cpu_ms))
        assert resident.verdict is not None
        verdict = resident.verdict
        problem = LoadError(
            verdict.outcome.value, verdict.problem, path=verdict.path, line=verdict.line
        )
        raise self._not_loaded(resident, verdict.outcome, problem)

    def _not_loaded(self, resident: Resident, outcome: Outcome, error: LoadError) -> NotLoaded:
        now_ms = self._unix_ms()
        place = f" ({error.path}, line {error.line})" if error.path else ""
        failure = LoadFailure(
            outcome=outcome,
            message=f"{error.name}: {error.message}{place}",
            error=ErrorLine(
                name=error.name, message=error.message + place, time_ms=now_ms, stack=error.trace
            ),
            lines=resident.outside.lines.take(now_ms),
        )
        return NotLoaded(failure, error)


def _explained(error: LoadError, version: WorkerVersion) -> LoadError:
    """Say of an import that finds the memory full, which Python does without a word, what fills it."""
    if error.name not in MEMORY_ERRORS:
        return error
    num_bytes = sum(file.num_bytes for file in version.files)
    problem = (
        f"the isolate's memory of {version.limits.memory_bytes >> 20} MiB is full, and the import needs "
        f"more; the worker's files alone have {num_bytes / (1 << 20):.1f} MiB of it. Leave out what it "
        "does not need, keep data in KV, or import less"
    )
    message = f"{error.message}: {problem}" if error.message else problem
    return LoadError(error.name, message, path=error.path, line=error.line, trace=error.trace)
