"""Templates by what they have loaded: opened when asked for, and replaced when they have given many."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from tenantry_runtime.background import background_tasks
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.workers.interface import Bundles
from tenantry_runtime.workers.isolate import Attendant, open_isolate
from tenantry_runtime.workers.sandbox import (
    GroupLimits,
    GuestCode,
    Interpreter,
    IsolateRlimits,
    Layers,
    Level,
    SpawnFailed,
    Template,
    TemplateSpec,
    UidRange,
    open_template,
    probe_layers,
)

from .config import EngineConfig
from .interface import Confined, TemplateKey
from .process import SpawnedProcess

_BASE = TemplateKey()
_GUEST = GuestCode(
    module="rehearsed_guest", files=(Path(__file__).with_name("rehearsed_guest.py"),)
)
_log = logging.getLogger(__name__)


class Standing:
    """A template that runs or is about to, and the isolates that are of it."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.used_s = began_s
        self.template: Template | None = None
        self.problem: Exception | None = None
        self.has_come = anyio.Event()
        """Set when `template` is there, or `problem`."""
        self.num_spawned = 0
        self.num_isolates = 0
        self._is_retired = False
        self.is_over = anyio.Event()
        """Set when nothing needs it any more."""

    @property
    def is_of_use(self) -> bool:
        """Whether it gives isolates, now or when it has come."""
        has_ended = self.template is not None and self.template.has_ended
        return self.problem is None and not has_ended

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Template]:
        """Keep the template for one isolate more."""
        assert self.template is not None
        self.num_spawned += 1
        self.num_isolates += 1
        try:
            yield self.template
        finally:
            self.num_isolates -= 1
            self._end_if_unused()

    def retire(self) -> None:
        """End it when the last of its isolates has ended."""
        self._is_retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._is_retired and not self.num_isolates:
            self.is_over.set()


class Templates:
    """A `Nursery` of processes; `open_templates` makes it."""

    def __init__(
        self,
        *,
        interpreter: Interpreter,
        layers: Layers,
        floor: Level,
        bundles: Bundles,
        config: EngineConfig,
        tasks: TaskGroup,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interpreter = interpreter
        self._layers = layers
        self._floor = floor
        self._bundles = bundles
        self._config = config
        self._tasks = tasks
        self._now = now
        # processes with one range of users seldom meet if each begins somewhere else
        self._uids = UidRange(start=secrets.randbelow(UidRange().count))
        self._standing: dict[TemplateKey, Standing] = {}
        """The one least recently asked for first."""
        self._successors: dict[TemplateKey, Standing] = {}

    @property
    def level(self) -> Level:
        """How well isolates are confined."""
        return self._layers.level

    def pids(self) -> list[int]:
        """Return the processes of templates that give isolates."""
        templates = (standing.template for standing in self._standing.values())
        return [template.pid for template in templates if template and not template.has_ended]

    @asynccontextmanager
    async def spawn(
        self, key: TemplateKey, *, memory_bytes: int, outside: Attendant
    ) -> AsyncIterator[Confined]:
        standing = await self.stand(key)
        limits = IsolateRlimits(memory_bytes=memory_bytes)
        async with (
            standing.lend() as template,
            await template.spawn(limits) as spawned,
            open_isolate(spawned.socket, outside=outside) as isolate,
        ):
            yield Confined(isolate=isolate, process=SpawnedProcess(spawned))

    async def stand(self, key: TemplateKey) -> Standing:
        """Return a template that has come. Raises `SpawnFailed`."""
        standing = self._standing.pop(key, None)
        if standing is None or not standing.is_of_use:
            standing = self._open(key)
        self._standing[key] = standing
        standing.used_s = self._now()
        await standing.has_come.wait()
        if standing.problem is not None:
            raise SpawnFailed(str(standing.problem)) from standing.problem
        return self._newest(key, standing)

    def tidy(self, now_s: float) -> None:
        """End templates that nobody has asked for in long, and those that are too many."""
        num_excess = len(self._standing) - self._config.max_templates
        for key, standing in tuple(self._standing.items()):
            is_old = now_s - standing.used_s >= self._config.template_idle_s
            if key != _BASE and not standing.num_isolates and (is_old or num_excess > 0):
                num_excess -= 1
                del self._standing[key]
                standing.retire()

    def _newest(self, key: TemplateKey, standing: Standing) -> Standing:
        """Replace a template that has given many, as soon as another has come."""
        successor = self._successors.get(key)
        if successor is None:
            age_s = self._now() - standing.began_s
            config = self._config
            if standing.num_spawned >= config.template_spawns or age_s >= config.template_s:
                self._successors[key] = self._open(key)
            return standing
        if not successor.has_come.is_set():
            return standing
        del self._successors[key]
        if not successor.is_of_use:
            return standing
        self._standing[key] = successor
        standing.retire()
        return successor

    def _open(self, key: TemplateKey) -> Standing:
        standing = Standing(self._now())
        self._tasks.start_soon(self._run, key, standing)
        return standing

    async def _run(self, key: TemplateKey, standing: Standing) -> None:
        try:
            async with open_template(self._spec(key), uids=self._uids) as template:
                standing.template = template
                standing.has_come.set()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_after, template.wait, tasks)
                    await standing.is_over.wait()
                    tasks.cancel_scope.cancel()
            if not standing.is_over.is_set():
                _log.error("a template of isolates has ended by itself")
        except (ConfigurationError, OSError) as error:
            _log.error("%s", error)
            standing.problem = error
        finally:
            if standing.template is None and standing.problem is None:
                standing.problem = SpawnFailed("the runtime ends")
            standing.has_come.set()

    def _spec(self, key: TemplateKey) -> TemplateSpec:
        folder = self._bundles.dependencies(key.dependencies) if key.dependencies else None
        return TemplateSpec(
            interpreter=self._interpreter,
            dependencies=folder,
            floor=self._floor,
            layers=self._layers,
            limits=_group_limits(self._config, self._layers),
            guest=_GUEST,
        )


@asynccontextmanager
async def open_templates(
    *,
    interpreter: Interpreter,
    bundles: Bundles,
    config: EngineConfig = EngineConfig(),  # noqa: B008  # frozen
    floor: Level = Level.USER_NAMESPACE,
    layers: Layers | None = None,
) -> AsyncIterator[Templates]:
    """Open a `Nursery`; leaving it ends all isolates, so that the engine is opened inside.

    `layers`: what a probe found; None: probe. Raises `SandboxTooWeak`, and `TemplateFailed` where a
    template without dependencies does not start.
    """
    if layers is None:
        layers = await probe_layers(interpreter)
    async with background_tasks() as tasks:
        templates = Templates(
            interpreter=interpreter,
            layers=layers,
            floor=floor,
            bundles=bundles,
            config=config,
            tasks=tasks,
        )
        await _try(templates)
        yield templates


def _group_limits(config: EngineConfig, layers: Layers) -> GroupLimits | None:
    """Return what control groups are to count; None where not even memory can be."""
    missing = dict(layers.problems)
    if not config.groups or "cgroup-memory" in missing:
        return None
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return GroupLimits(
        memory_bytes=config.template_memory_bytes or machine_bytes * 3 // 4,
        num_tasks=None if "cgroup-pids" in missing else config.template_tasks,
        cpus=None if "cgroup-cpu" in missing else config.template_cpus,
    )


async def _try(templates: Templates) -> None:
    try:
        await templates.stand(_BASE)
    except SpawnFailed as error:
        if isinstance(error.__cause__, ConfigurationError):
            raise error.__cause__ from None
        raise


async def _cancel_after(wait: Callable[[], Awaitable[None]], tasks: TaskGroup) -> None:
    await wait()
    tasks.cancel_scope.cancel()
