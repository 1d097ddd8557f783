"""The edge's view of one node: connects, stays connected, runs sequences."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType

import anyio
import grpc
from anyio.abc import TaskGroup

from tenantry_runtime.errors import IncompatibleNode, NodeUnavailable

from .bell import Bell
from .connection import Connection, ConnectionLost, open_connection
from .grpc_options import DRAIN, channel_for
from .interface import NodeObserver, RunningSequence
from .liveness import Liveness
from .messages import NodeDescription, NodeStatistics, ServedElsewhere, Submit
from .page_map import PageMaps
from .tls import TlsFiles, require_safe

FIRST_DELAY_S = 0.05
LAST_DELAY_S = 1.0

STATISTICS_TIMEOUT_S = 5.0
DRAIN_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


def connect(
    address: str,
    *,
    edge: str = "edge",
    liveness: Liveness | None = None,
    tls: TlsFiles | None = None,
    observer: NodeObserver | None = None,
) -> NodeClient:
    """Make the client of the node at `unix:/path/node.sock` or `host:port`.

    Entering it does not wait for the node: it connects in the background and keeps doing so.
    Raises `ConfigurationError` where `tls.require_safe` does, or for certificates that cannot be read.
    """
    require_safe(address, tls)
    if tls is not None:
        tls.read()
    return NodeClient(
        address, edge=edge, liveness=liveness or Liveness(), tls=tls, observer=observer
    )


async def drain_node(address: str, tls: TlsFiles | None = None) -> None:
    """Tell the node at `unix:/path/node.sock` or `host:port` to end when what it runs is over.

    Raises `ConnectionLost` when it does not answer, `ConfigurationError` as `connect` does.
    """
    try:
        async with channel_for(address, tls) as channel:
            await channel.unary_unary(DRAIN)(b"", timeout=DRAIN_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        raise ConnectionLost(error.details()) from error


class NodeClient:
    """A `TokenSource` over gRPC. One Work stream carries all sequences."""

    def __init__(
        self,
        address: str,
        *,
        edge: str,
        liveness: Liveness,
        tls: TlsFiles | None = None,
        observer: NodeObserver | None = None,
    ) -> None:
        self._address = address
        self._edge = edge
        self._liveness = liveness
        self._tls = tls
        self._observer = observer
        self._connection: Connection | None = None
        self._description: NodeDescription | None = None
        self._refusal: IncompatibleNode | None = None
        self._changed = anyio.Event()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> NodeClient:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._stay_connected)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        # without the body's exception, which would come out wrapped in a group
        await self._tasks.__aexit__(None, None, None)

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_healthy(self) -> bool:
        """Whether the node is connected and its step loop turns."""
        connection = self._connection
        if connection is None:
            return False
        return time.monotonic() - connection.progress_s < self._liveness.stale_after_s

    @property
    def description(self) -> NodeDescription:
        """Raise `NodeUnavailable` before the first handshake."""
        if self._description is None:
            raise NodeUnavailable(self._address)
        return self._description

    async def ready(self) -> NodeDescription:
        """Wait for the node; raise `IncompatibleNode` when it has refused the handshake."""
        while self._connection is None:
            if self._refusal is not None:
                raise self._refusal
            await self._changed.wait()
        return self._connection.description

    @asynccontextmanager
    async def generate(
        self, submit: Submit, bell: Bell | None = None
    ) -> AsyncIterator[RunningSequence]:
        """Run one sequence, as `TokenSource` says."""
        connection = self._connection
        if connection is None or not self.is_healthy:
            raise NodeUnavailable(submit.model)
        async with connection.sequence(submit, bell) as sequence:
            yield sequence

    def pass_on(self, served: ServedElsewhere) -> None:
        """Tell the node what another one has given, as `TokenSource` says."""
        if self._connection is not None:
            self._connection.pass_on(served)

    async def statistics(self) -> NodeStatistics:
        """Ask the node for its state; raise `NodeUnavailable` when it does not answer."""
        if self._connection is None:
            raise NodeUnavailable(self._address)
        try:
            return await self._connection.statistics(STATISTICS_TIMEOUT_S)
        except ConnectionLost as error:
            raise NodeUnavailable(self._address) from error

    async def pages(self) -> PageMaps:
        """Ask the node for a map of its pages; raise `NodeUnavailable` when it does not answer."""
        if self._connection is None:
            raise NodeUnavailable(self._address)
        try:
            return await self._connection.pages(STATISTICS_TIMEOUT_S)
        except ConnectionLost as error:
            raise NodeUnavailable(self._address) from error

    async def _stay_connected(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            try:
                async with open_connection(
                    self._address,
                    edge=self._edge,
                    liveness=self._liveness,
                    tls=self._tls,
                    observer=self._observer,
                ) as connection:
                    delay_s = FIRST_DELAY_S
                    self._become(connection, None)
                    _log.info("connected to node %s", self._address)
                    try:
                        reason = await connection.run(self._liveness)
                    finally:
                        self._become(None, None)
                    _log.warning("lost node %s: %s", self._address, reason)
            except ConnectionLost as error:
                _log.debug("no node at %s: %s", self._address, error)
            except IncompatibleNode as error:
                _log.error("%s", error)
                self._become(None, error)

            # jitter, so that the edges of a cluster do not return to a node all at once
            await anyio.sleep(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(2 * delay_s, LAST_DELAY_S)

    def _become(self, connection: Connection | None, refusal: IncompatibleNode | None) -> None:
        self._connection = connection
        self._refusal = refusal
        if connection is not None:
            self._description = connection.description
        self._changed.set()
        self._changed = anyio.Event()
