"""Workers at an edge: their parts put together, and ended in order.

| opened, first to last | needs |
|---|---|
| logs | the state directory |
| templates | an interpreter, and a machine that confines at least as well as the floor |
| directory | the store; it tells the engine which versions are asked for no more |
| bindings | the edge's services: models, store; the directory |
| engine | all of these |
| tails, cron | the logs, the engine |
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import anyio
from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.trace import NoOpTracer, Tracer
from starlette.routing import Route
from starlette.types import ASGIApp

from tenantry_runtime.background import background_tasks
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.telemetry.metrics import IsolateMetrics, WorkerMeter
from tenantry_runtime.tenancy.secret_keys import KeySource
from tenantry_runtime.tenancy.workers import WorkerStore
from tenantry_runtime.workers.bindings import TracedCalls, open_bindings
from tenantry_runtime.workers.bundles.blobs import StoredBundles
from tenantry_runtime.workers.bundles.dependencies import Dependencies
from tenantry_runtime.workers.bundles.resolver import Resolver
from tenantry_runtime.workers.cron import CronRunner, StoredClaims
from tenantry_runtime.workers.engine import WorkerEngine, open_engine, open_templates
from tenantry_runtime.workers.interface import Engine, LogSink
from tenantry_runtime.workers.logs import (
    TakeRecord,
    WorkerLogs,
    open_tail_listener,
    open_worker_logs,
)
from tenantry_runtime.workers.sandbox import (
    Interpreter,
    Layers,
    Level,
    find_interpreter,
    probe_layers,
)

from .control.routes import WORKERS, control_routes
from .control.services import ControlServices, Interpreter as ToldInterpreter
from .installed import InstalledWorkers, KnownVersions
from .no_engine import NoEngine
from .open_requests import OpenRequests
from .services import Services
from .worker_routes import Directory, OpenByAccount, Parts, WorkerRoutes, WorkerUrls, open_directory
from .worker_routes.kept_logs import logs_route
from .worker_routes.tails import EdgeTails
from .workers_config import PartMisfit, WorkerParts, WorkersConfig, read_parts

BUNDLES_DIRECTORY = "workers"
LOGS_DIRECTORY = "worker-logs"

DRAIN_MARGIN = 0.7
"""The part of an edge's grace that running invocations have; the rest is for telling those that are cut off."""

Probe: TypeAlias = Callable[[Interpreter], Awaitable[Layers]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeWorkers:
    """What of workers an edge's process and its routes deal with."""

    control: ControlServices
    parts: Parts
    logs: WorkerLogs
    engine: WorkerEngine | None
    """None: this machine cannot run workers, and need not."""
    cron: CronRunner | None

    def routes(self) -> list[Route]:
        """Return the routes of the control plane."""
        return [
            logs_route(WORKERS, self.control, self.logs.kept),
            *control_routes(self.control),
        ]

    def in_front_of(self, app: ASGIApp) -> ASGIApp:
        """Return the application that serves workers, and hands all else on."""
        return WorkerRoutes(app, self.parts)

    async def drain(self, grace_s: float) -> None:
        """Take nothing more, let what runs end, and end what has not after most of the grace."""
        self.parts.open_requests.refuse()
        self.logs.tails.close_all()
        if self.cron is not None:
            self.cron.close()
        if self.engine is not None:
            with anyio.move_on_after(DRAIN_MARGIN * grace_s):
                await self.engine.drain()
        self.parts.open_requests.close()


@asynccontextmanager
async def open_workers(
    config: WorkersConfig,
    services: Services,
    state_dir: Path,
    *,
    host: str = "127.0.0.1",
    environ: Mapping[str, str] = os.environ,
    probe: Probe = probe_layers,
    meter: Meter | None = None,
    export_logs: TakeRecord | None = None,
) -> AsyncIterator[EdgeWorkers]:
    """Run workers for the duration of the context.

    `host` is where tails are listened to; `environ` says where dependencies come from, `probe`
    says what this machine can confine, `meter` counts what is run, and `export_logs` takes what it says
    to tenants' collectors.

    Raises `ConfigurationError` where they cannot run and are not optional: `SandboxTooWeak` says why.
    """
    try:
        read = read_parts(config)
    except PartMisfit as error:
        raise ConfigurationError(str(error)) from error
    domains = {TenantId(account): names for account, names in config.domains.items()}
    store = WorkerStore(services.store.database, KeySource(state_dir), domains=domains)
    async with (
        open_worker_logs(state_dir / LOGS_DIRECTORY, read.logs, export=export_logs) as logs,
        _running(
            config,
            read,
            services,
            store,
            WorkerMeter(meter or NoOpMeter("tenantry"), logs),
            state_dir,
            environ,
            probe,
        ) as running,
        open_tail_listener(logs.tails, host, config.tails_port) as tails_port,
        background_tasks() as tasks,
    ):
        if meter is not None and running.engine is not None:
            IsolateMetrics(running.engine.statistics).register(meter)
        cron = None
        tracer = _tracer(services)
        if config.cron and running.engine is not None:
            cron = CronRunner(
                schedules=store,
                claims=StoredClaims(services.store.database),
                engine=running.engine,
                resolve=running.directory.version,
                tracer=tracer,
            )
            tasks.start_soon(cron.run)
        yield EdgeWorkers(
            control=ControlServices(
                authenticator=services.authenticator,
                store=services.store,
                workers=store,
                kv=services.store.kv,
                startup=running.runs,
                dependencies=running.dependencies,
                tails=EdgeTails(logs.tails, tails_port, config.tails_url),
                logs=logs.kept,
                interpreter=running.interpreter,
                changed=running.directory.forget,
            ),
            parts=Parts(
                engine=running.runs,
                directory=running.directory,
                tasks=tasks,
                open_requests=OpenRequests(read.limits.max_requests),
                accounts=OpenByAccount(read.limits.max_requests_each),
                urls=WorkerUrls(
                    config.domain, [name for names in config.domains.values() for name in names]
                ),
                limits=read.limits,
                tracer=tracer,
                test_scheduled=config.test_scheduled,
            ),
            logs=logs,
            engine=running.engine,
            cron=cron,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """What runs workers, or says why nothing does."""

    engine: WorkerEngine | None
    runs: Engine
    interpreter: ToldInterpreter
    directory: Directory
    dependencies: Dependencies | None


@asynccontextmanager
async def _running(
    config: WorkersConfig,
    read: WorkerParts,
    services: Services,
    store: WorkerStore,
    sink: LogSink,
    state_dir: Path,
    environ: Mapping[str, str],
    probe: Probe,
) -> AsyncIterator[_Running]:
    async with AsyncExitStack() as stack:
        try:
            interpreter = await _interpreter(config)
            dependencies = _dependencies(config, read, interpreter, state_dir, environ)
            bundles = StoredBundles(
                store.blobs,
                state_dir / BUNDLES_DIRECTORY,
                dependencies=dependencies.directory,
            )
            templates = await stack.enter_async_context(
                open_templates(
                    interpreter=interpreter,
                    bundles=bundles,
                    config=read.engine,
                    floor=Level.NONE if config.unsafe_no_sandbox else Level(config.floor),
                    layers=await probe(interpreter),
                )
            )
        except ConfigurationError as error:
            if not config.is_optional:
                raise
            _log.error("workers do not run here: %s", error)
            yield _Running(
                engine=None,
                runs=NoEngine(str(error)),
                interpreter=ToldInterpreter(),
                directory=await stack.enter_async_context(open_directory(store)),
                dependencies=None,
            )
            return
        level = templates.level
        say = _log.info if level.reaches(Level(config.floor)) else _log.warning
        say("workers run in isolates of level %s, with %s", level, interpreter.executable)
        engines: list[WorkerEngine] = []

        def retire(version_id: str) -> None:
            for engine in engines:
                engine.retire(version_id)

        directory = await stack.enter_async_context(
            open_directory(InstalledWorkers(store, dependencies), on_replaced=retire)
        )
        bindings = await stack.enter_async_context(
            open_bindings(
                services,
                versions=KnownVersions(directory),
                secrets=store.secrets,
                outbound=read.outbound,
            )
        )
        engine = await stack.enter_async_context(
            open_engine(
                templates, bindings=bindings, bundles=bundles, sink=sink, config=read.engine
            )
        )
        tracer = _tracer(services)
        bindings.attach(engine if tracer is None else TracedCalls(engine, tracer))
        engines.append(engine)
        yield _Running(
            engine=engine,
            runs=engine,
            interpreter=_told(interpreter),
            directory=directory,
            dependencies=dependencies,
        )


def _tracer(services: Services) -> Tracer | None:
    """Return what records spans; None: nobody does."""
    return None if isinstance(services.tracer, NoOpTracer) else services.tracer


def _dependencies(
    config: WorkersConfig,
    read: WorkerParts,
    interpreter: Interpreter,
    state_dir: Path,
    environ: Mapping[str, str],
) -> Dependencies:
    resolver = Resolver(
        python=".".join(map(str, interpreter.version)),
        index_url=config.index_url,
        environ=environ,
        may_be_unconfined=config.unsafe_no_sandbox,
    )
    return Dependencies(
        state_dir / BUNDLES_DIRECTORY, resolver, is_shared=read.engine.share_templates
    )


async def _interpreter(config: WorkersConfig) -> Interpreter:
    if config.interpreter is None:
        return await find_interpreter()
    return await find_interpreter(config.interpreter)


def _told(interpreter: Interpreter) -> ToldInterpreter:
    version = ".".join(map(str, interpreter.version))
    # of the runtime's own more is known
    whole = platform.python_version()
    return ToldInterpreter(
        path=interpreter.executable,
        version=whole if whole.startswith(f"{version}.") else version,
    )
