"""An edge behind a real socket, in the test's own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx

from support.edges import Edge
from tenantry_runtime.edge.server import EdgeServer, listening, url_of


@asynccontextmanager
async def serving(edge: Edge) -> AsyncIterator[httpx.AsyncClient]:
    """Serve on a free port; what is still open at the end has half a minute to close."""
    with listening("127.0.0.1", 0) as bound:
        url = url_of(bound)
        server = EdgeServer(edge.app, bound)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve)
            try:
                async with httpx.AsyncClient(
                    base_url=url,
                    headers=edge.state.headers,
                    timeout=30,
                    limits=httpx.Limits(max_connections=None),
                ) as client:
                    yield client
            finally:
                edge.services.open_requests.close()
                server.end()
                tasks.cancel_scope.deadline = anyio.current_time() + 30
    assert not tasks.cancel_scope.cancelled_caught, "the server did not end by itself"


def port_of(client: httpx.AsyncClient) -> int:
    port = client.base_url.port
    assert port is not None
    return port
