"""The edge process: the one place where its parts are put together."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from tenantry_runtime.background import background_tasks
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.core import TenantId
from tenantry_runtime.pool.client import connect
from tenantry_runtime.telemetry import tracing
from tenantry_runtime.telemetry.metrics import (
    DriftMeter,
    EdgeMetrics,
    Metering,
    NodeMetrics,
    RequestMeter,
    metering,
)
from tenantry_runtime.tenancy import Authenticator, open_store
from tenantry_runtime.tenancy.kv_sweep import KvSweeper
from tenantry_runtime.tenancy.ledger import JOURNAL_DIRECTORY, open_ledger
from tenantry_runtime.tenancy.limits import open_limiter
from tenantry_runtime.tenancy.sweeping import sweep_forever

from .app import build_app
from .batch_worker import BatchWorker
from .config import EdgeConfig
from .dialects.workers_ai import WorkersAI
from .drift import DriftWatch, Unwatched, Watch
from .incidents import NodeIncidents, recording, storm_watch
from .nodes import Nodes
from .offer import load_offers
from .open_requests import OpenRequests
from .operator import Operating, OperatorAccess, operator_routes
from .server import EdgeServer, listening, url_of
from .services import Services

if TYPE_CHECKING:
    from tenantry_runtime.workers.logs import TakeRecord

    from .workers import EdgeWorkers

KV_SWEEP_S, INCIDENT_SWEEP_S = 60.0, 600.0
"""Between two sweeps of the store."""

NUM_THREADS = 2
"""For long requests. More would not be faster: they hold the interpreter's lock most of the time."""

_log = logging.getLogger(__name__)


async def run(config: EdgeConfig, *, environ: Mapping[str, str] = os.environ) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises `ConfigurationError` for what makes a start impossible. A node that is not there yet is
    none of that: the edge answers, and is not ready.
    """
    with (
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
        metering(environ, is_scraped=config.operator is not None) as meters,
        # around all that serves, so that a tenant's collector holds up nothing that ends with it
        _exported_worker_logs(config, environ) as export_logs,
    ):
        # bound first, so that a port that is taken is an error before anything else starts
        with listening(config.host, config.port) as bound:
            async with (
                _services(config, environ, meters, name=_name(bound)) as services,
                _workers(config, services, environ, meters, export_logs) as workers,
            ):
                url = url_of(bound)
                routes = _operator_routes(config, services, meters)
                server = EdgeServer(_application(services, workers, routes), bound)
                async with background_tasks() as endless, anyio.create_task_group() as tasks:

                    async def serve() -> None:
                        await server.serve()
                        if not services.open_requests.statistics().is_closed:
                            raise RuntimeError("the HTTP server ended by itself")

                    tasks.start_soon(serve)
                    batches = BatchWorker(services, WorkersAI(), config.batches)
                    tasks.start_soon(batches.run)
                    _start_sweeps(endless, config, services)
                    if isinstance(services.drift, DriftWatch):
                        endless.start_soon(services.drift.run)
                    _log.info("listening on %s", url)
                    async for number in signals:
                        _log.info("%s: ending", signal.Signals(number).name)
                        break
                    # streams end with an error event rather than in the middle
                    services.open_requests.close()
                    batches.close()
                    server.end()
                    # after that, clients that neither read nor close are left behind
                    tasks.cancel_scope.deadline = anyio.current_time() + config.grace_s
                    if workers is not None:
                        await workers.drain(config.grace_s)
    _log.info("ended")


def _name(bound: socket.socket) -> str:
    """Return what tells this edge from others of its store, also after it has started anew."""
    return f"{socket.gethostname()}:{bound.getsockname()[1]}"


def _start_sweeps(tasks: TaskGroup, config: EdgeConfig, services: Services) -> None:
    """Also where workers do not run: what was kept for them expires all the same."""
    keep, incidents = config.incidents, services.store.incidents
    keys = KvSweeper(services.store.database).sweep
    old = partial(incidents.sweep, keep_days=keep.keep_days, max_kept=keep.max_kept)
    tasks.start_soon(partial(sweep_forever, keys, every_s=KV_SWEEP_S, what="keys and values"))
    tasks.start_soon(partial(sweep_forever, old, every_s=INCIDENT_SWEEP_S, what="incidents"))


def _drift(config: EdgeConfig, nodes: Nodes, meters: Metering) -> Watch:
    if not config.drift.share:
        return Unwatched()
    return DriftWatch(nodes, config.drift, DriftMeter(meters.meter))


def _application(
    services: Services, workers: EdgeWorkers | None, operator: Sequence[BaseRoute]
) -> ASGIApp:
    if workers is None:
        return build_app(services, operator)
    routes = [*operator, *workers.routes()]
    return workers.in_front_of(build_app(services, routes, workers.engine is not None))


def _operator_routes(
    config: EdgeConfig, services: Services, meters: Metering
) -> Sequence[BaseRoute]:
    if config.operator is None:
        return ()
    access = OperatorAccess(services.authenticator, TenantId(config.operator))
    return operator_routes(Operating(services, access, meters, services.meter.recent))


@contextmanager
def _exported_worker_logs(
    config: EdgeConfig, environ: Mapping[str, str]
) -> Iterator[TakeRecord | None]:
    if config.workers is None:
        yield None
        return
    # as `_workers` does
    from tenantry_runtime.telemetry.worker_logs import sending_worker_logs

    with sending_worker_logs(environ) as posts:
        yield posts.take


@asynccontextmanager
async def _workers(
    config: EdgeConfig,
    services: Services,
    environ: Mapping[str, str],
    meters: Metering,
    export_logs: TakeRecord | None,
) -> AsyncIterator[EdgeWorkers | None]:
    if config.workers is None:
        yield None
        return
    # a quarter of a second, which an edge that only asks models does without
    from .workers import open_workers

    async with open_workers(
        config.workers,
        services,
        Path(config.state_dir),
        host=config.host,
        environ=environ,
        meter=meters.meter,
        export_logs=export_logs,
    ) as workers:
        yield workers


@asynccontextmanager
async def _services(
    config: EdgeConfig, environ: Mapping[str, str], meters: Metering, *, name: str
) -> AsyncIterator[Services]:
    catalog = load_catalog(Path(config.catalog) if config.catalog is not None else None)
    async with AsyncExitStack() as stack:
        tracer = stack.enter_context(tracing(environ))
        store = await stack.enter_async_context(
            open_store(Path(config.state_dir), url=config.store)
        )
        recorder = await stack.enter_async_context(recording(store.incidents))
        storms = await stack.enter_async_context(storm_watch(recorder, edge=name))
        nodes = Nodes(incidents=NodeIncidents(recorder, edge=name))
        for node in config.known_nodes:
            client = connect(node.address, tls=node.tls, liveness=config.liveness, observer=nodes)
            nodes.add(await stack.enter_async_context(client))
        authenticator = Authenticator(store)
        await stack.enter_async_context(authenticator.last_use.keep())
        limiter = await stack.enter_async_context(open_limiter(store.database))
        ledger = await stack.enter_async_context(
            open_ledger(
                store.database,
                Path(config.state_dir) / JOURNAL_DIRECTORY,
                max_open=config.limits.max_requests,
            )
        )
        open_requests = OpenRequests(config.limits.max_requests)
        NodeMetrics(nodes).register(meters.meter)
        EdgeMetrics(
            num_open_requests=lambda: open_requests.statistics().num_open,
            ledger=ledger.statistics,
            incidents=lambda: recorder.counts,
            retries=nodes.router.retry_statistics,
        ).register(meters.meter)
        yield Services(
            offers=await load_offers(catalog),
            nodes=nodes,
            store=store,
            authenticator=authenticator,
            tracer=tracer,
            open_requests=open_requests,
            threads=anyio.CapacityLimiter(NUM_THREADS),
            limits=config.limits,
            limiter=limiter,
            ledger=ledger,
            meter=RequestMeter(meters.meter),
            storms=storms,
            drift=_drift(config, nodes, meters),
            show_routing=config.show_routing,
        )
