"""The edge process: the one place where its parts are put together."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.pool.client import connect
from tenantry_runtime.telemetry import tracing
from tenantry_runtime.tenancy import Authenticator, open_store

from .app import build_app
from .config import EdgeConfig
from .nodes import Nodes
from .offer import load_offers
from .open_requests import OpenRequests
from .server import EdgeServer, listening, url_of
from .services import Services

NUM_THREADS = 2
"""For long requests. More would not be faster: they hold the interpreter's lock most of the time."""

_log = logging.getLogger(__name__)


async def run(config: EdgeConfig, *, environ: Mapping[str, str] = os.environ) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises `ConfigurationError` for what makes a start impossible. A node that is not there yet is
    none of that: the edge answers, and is not ready.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        # bound first, so that a port that is taken is an error before anything else starts
        with listening(config.host, config.port) as bound:
            async with _services(config, environ) as services:
                url = url_of(bound)
                server = EdgeServer(build_app(services), bound)
                async with anyio.create_task_group() as tasks:

                    async def serve() -> None:
                        await server.serve()
                        if not services.open_requests.statistics().is_closed:
                            raise RuntimeError("the HTTP server ended by itself")

                    tasks.start_soon(serve)
                    _log.info("listening on %s", url)
                    async for number in signals:
                        _log.info("%s: ending", signal.Signals(number).name)
                        break
                    # streams end with an error event rather than in the middle
                    services.open_requests.close()
                    server.end()
                    # after that, clients that neither read nor close are left behind
                    tasks.cancel_scope.deadline = anyio.current_time() + config.grace_s
    _log.info("ended")


@asynccontextmanager
async def _services(config: EdgeConfig, environ: Mapping[str, str]) -> AsyncIterator[Services]:
    catalog = load_catalog(Path(config.catalog) if config.catalog is not None else None)
    async with AsyncExitStack() as stack:
        tracer = stack.enter_context(tracing(environ))
        nodes = Nodes()
        for node in config.known_nodes:
            client = connect(node.address, tls=node.tls, liveness=config.liveness, observer=nodes)
            nodes.add(await stack.enter_async_context(client))
        store = await stack.enter_async_context(open_store(Path(config.state_dir)))
        yield Services(
            offers=await load_offers(catalog),
            nodes=nodes,
            store=store,
            authenticator=Authenticator(store),
            tracer=tracer,
            open_requests=OpenRequests(config.limits.max_requests),
            threads=anyio.CapacityLimiter(NUM_THREADS),
            limits=config.limits,
            show_routing=config.show_routing,
        )
