"""A node: gRPC front here, step loop in a process of its own.

| process | does | ends |
|---|---|---|
| front | gRPC, who waits for which sequence | on SIGTERM or SIGINT (0), or after its loop |
| step loop | the members' computation | when its socket closes, at the latest with the front |

A front whose loop dies fails the running sequences, lets the edges read that, and exits with
`LOOP_DIED`: restarting is its supervisor's decision.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import grpc

from tenantry_runtime.errors import ConfigurationError

from .config import NodeProcessConfig
from .dispatch import Dispatch
from .grpc_options import server_options
from .loop_link import ENGINE, LoopLink, start_loop
from .messages import Failed, Step
from .service import NodeService
from .wire import Heartbeat, Ready, Unusable

STOPPED = 0
UNUSABLE = 1
LOOP_DIED = 3

DRAIN_S = 0.4
"""How long edges may take to read what they are owed when the node ends."""

_log = logging.getLogger(__name__)


async def serve_node(config: NodeProcessConfig, *, build: str = ENGINE) -> int:
    """Serve until a signal says stop or the step loop dies; return the exit code."""
    dispatch = Dispatch()
    async with start_loop(bytes(config.engine), build=build) as link:
        service = NodeService(dispatch=dispatch, link=link, incarnation=time.time_ns())
        async with _grpc_server(config.address, service), anyio.create_task_group() as tasks:
            outcome: list[int] = []

            async def stop_on_signal() -> None:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    async for number in signals:
                        _log.info("stopping on %s", number.name)
                        outcome.append(STOPPED)
                        dispatch.end("the node is stopping")
                        tasks.cancel_scope.cancel()

            tasks.start_soon(stop_on_signal)
            tasks.start_soon(link.send_forever)
            outcome.append(await _follow(link, dispatch, service))
            tasks.cancel_scope.cancel()
    return outcome[0]


async def _follow(link: LoopLink, dispatch: Dispatch, service: NodeService) -> int:
    """Pass on what the step loop says until it says no more; return the node's exit code."""
    async for report in link.reports():
        match report:
            case Step():
                for cancel in dispatch.deliver(report):
                    link.post(cancel)
            case Failed():
                dispatch.fail(report)
            case Heartbeat(statistics=statistics):
                service.note(statistics)
            case Ready(members=members):
                service.open(members)
            case Unusable(problem=problem):
                _log.error("%s", problem)
                return UNUSABLE

    ending = f"the step loop {await link.end()}"
    _log.error("%s", ending)
    dispatch.end(ending)
    return LOOP_DIED


@asynccontextmanager
async def _grpc_server(address: str, service: NodeService) -> AsyncIterator[None]:
    # grpc has no types
    server: Any = grpc.aio.server(options=server_options())
    server.add_generic_rpc_handlers((service.handler(),))
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigurationError(f"cannot listen on {address}: {error}") from error
    await server.start()
    try:
        yield
    finally:
        # streams end by themselves once read; `stop` bounds that and must not be cut short
        with anyio.CancelScope(shield=True):
            await server.stop(DRAIN_S)
