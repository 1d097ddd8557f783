"""Waiting for the edge to say that every model is served, and for a node that its own are loaded."""

from __future__ import annotations

import http.client
import json
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread

from tenantry_runtime.deployment import Node
from tenantry_runtime.deployment.node_address import TcpAddress

from .address import Address

POLL_INTERVAL_S = 0.05
ANSWER_TIMEOUT_S = 0.5
"""Also the longest that an abandoned question delays the exit after Ctrl-C."""

SLOW_START_S = 15.0
"""After which a word is due; large checkpoints take minutes."""


async def patiently(wait: Callable[[], Awaitable[None]], say_slow: Callable[[], None]) -> None:
    """Wait for what may be started anew; say once that it takes long."""
    with anyio.move_on_after(SLOW_START_S) as slowness:
        await wait()
    if slowness.cancelled_caught:
        say_slow()
        await wait()


async def until_ready(address: Address) -> None:
    """Ask `/ready` until it says yes."""
    while True:
        if await anyio.to_thread.run_sync(_is_ready, address, abandon_on_cancel=True):
            return
        await anyio.sleep(POLL_INTERVAL_S)


async def until_node_ready(node: Node) -> None:
    """Introduce ourselves to a node until it has loaded its models."""
    # gRPC, a tenth of a second that the children's start does without
    from tenantry_runtime.pool.client import connect

    tls = node.tls if isinstance(node.address, TcpAddress) else None
    async with connect(str(node.address), edge="workerctl serve", tls=tls) as client:
        await client.ready()


async def runs_workers(address: Address) -> bool:
    """Say whether an edge that is ready runs workers."""
    return await anyio.to_thread.run_sync(_runs_workers, address, abandon_on_cancel=True)


def _runs_workers(address: Address) -> bool:
    connection = http.client.HTTPConnection(
        address.reachable_host, address.port, timeout=ANSWER_TIMEOUT_S
    )
    try:
        connection.request("GET", "/ready")
        return bool(json.loads(connection.getresponse().read()).get("workers"))
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_ready(address: Address) -> bool:
    connection = http.client.HTTPConnection(
        address.reachable_host, address.port, timeout=ANSWER_TIMEOUT_S
    )
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
