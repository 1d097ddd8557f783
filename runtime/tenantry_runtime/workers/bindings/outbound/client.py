"""Sending workers' requests, following redirects, and handing out responses.

Each hop is checked by itself: the host against the lists, the address when the connection is made.
"""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import anyio
import certifi
import httpcore

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.bindings.arguments import Arguments, shown, wrong_type
from tenantry_runtime.workers.bindings.places import Places
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallContext,
    CallRefused,
    HttpResponse,
)

from .config import OutboundConfig
from .connect import CheckedBackend, Resolve, Unreachable, system_resolver
from .request import OutboundRequest, denied, read_request, redirect_mode, without_hops
from .response import PACKED, ResponseBody

MAX_POOLS = 256
"""Tenants with connections; the one that has asked for nothing for longest gives way."""
MAX_RESPONSE_HEADERS = 200
MAX_DISCARDED_BYTES = 8192
REDIRECTS = frozenset((301, 302, 303, 307, 308))


class OutboundClient:
    """Answers `FETCH` of all workers. Made by `open_outbound`."""

    def __init__(
        self,
        config: OutboundConfig,
        *,
        resolve: Resolve,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._config = config
        self._resolve = resolve
        self._network = network or httpcore.AnyIOBackend()
        self._lookups = Places(config.lookups_each)
        self._tls = ssl.create_default_context(cafile=config.ca_file or certifi.where())
        self._pools: OrderedDict[TenantId, httpcore.AsyncConnectionPool] = OrderedDict()

    async def call(
        self, context: CallContext, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> HttpResponse:
        """Answer one, as `interface.Bindings.call` says."""
        if method != "fetch":
            raise wrong_type(f"there is no outbound {shown(method)}")
        read = Arguments("fetch", args, at_most=5)
        request, mode = read_request(read, body), redirect_mode(read)
        deadline_s = inf if context.deadline_s is None else context.deadline_s
        with anyio.CancelScope(deadline=deadline_s) as scope:
            return await self._follow(context.tenant, request, mode)
        assert scope.cancelled_caught
        raise CallRefused("TimeoutError", f"fetch: {shown(request.host)} did not answer in time")

    async def aclose(self) -> None:
        while self._pools:
            _, pool = self._pools.popitem()
            await pool.aclose()

    async def _follow(self, tenant: TenantId, request: OutboundRequest, mode: str) -> HttpResponse:
        for _ in range(self._config.max_redirects + 1):
            response = await self._send(tenant, request)
            location = dict(response.headers).get("location")
            if response.status not in REDIRECTS or location is None or mode == "manual":
                return response
            await _discard(response)
            if mode == "error":
                raise wrong_type("fetch: the response is a redirect, which redirect: error refuses")
            request = request.redirected(response.status, location)
        raise wrong_type(f"fetch: more than {self._config.max_redirects} redirects")

    async def _send(self, tenant: TenantId, request: OutboundRequest) -> HttpResponse:
        config = self._config
        may_ask = config.is_enabled and config.allows_host(tenant, request.host)
        if not may_ask or not config.allows_port(request.port):
            raise denied(request.host)

        def failed(error: Exception) -> CallRefused:
            return _failed(error, request)

        try:
            pool = await self._pool(tenant)
            response = await pool.handle_async_request(self._printed(request))
        except (
            Unreachable,
            ssl.SSLError,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.TimeoutException,
        ) as error:
            raise failed(error) from error
        return await self._received(response, request, failed)

    def _printed(self, request: OutboundRequest) -> httpcore.Request:
        url, headers = request.url, list(request.headers)
        authority = url.netloc.decode("ascii")
        headers[:0] = [("host", authority), ("accept-encoding", "identity")]
        content: bytes | AsyncIterator[bytes] = b""
        if isinstance(request.body, bytes):
            content = request.body
            if content or request.method in ("POST", "PUT", "PATCH"):
                headers.append(("content-length", str(len(content))))
        else:
            content = self._limited(request.body)
            headers.append(("transfer-encoding", "chunked"))
        config = self._config
        timeout = {
            "connect": config.connect_s,
            "pool": config.idle_s,
            "read": config.idle_s,
            "write": config.idle_s,
        }
        return httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=url.scheme, host=request.host, port=request.port, target=url.raw_path
            ),
            headers=[(name.encode(), value.encode("latin-1")) for name, value in headers],
            content=content,
            extensions={"timeout": timeout},
        )

    async def _limited(self, body: ByteStream) -> AsyncIterator[bytes]:
        num_bytes, limit = 0, self._config.max_request_bytes
        async for piece in body:
            num_bytes += len(piece)
            if num_bytes > limit:
                raise wrong_type(f"fetch: the request's body has more than {limit} bytes")
            yield piece

    async def _received(
        self, response: httpcore.Response, request: OutboundRequest, failed: Any
    ) -> HttpResponse:
        headers = without_hops(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in response.headers
        )
        if len(headers) > MAX_RESPONSE_HEADERS or response.status < 200:
            await response.aclose()
            raise failed(httpcore.RemoteProtocolError("too many headers"))
        encoding: str | None = dict(headers).get("content-encoding", "").strip().lower()
        if encoding in PACKED and request.method != "HEAD":
            ours = ("content-encoding", "content-length")
            headers = [each for each in headers if each[0] not in ours]
        else:
            encoding = None
        body = ResponseBody(
            response,
            encoding=encoding,
            max_bytes=self._config.max_response_bytes,
            failed=failed,
        )
        url = str(request.url.copy_with(fragment=None))
        return HttpResponse(status=response.status, headers=headers, body=body, url=url)

    async def _pool(self, tenant: TenantId) -> httpcore.AsyncConnectionPool:
        """Return a tenant's own connections: what it does to a server's is no other's trouble."""
        pool = self._pools.get(tenant)
        is_new = pool is None
        if pool is None:
            backend = CheckedBackend(
                tenant,
                self._config,
                resolve=self._resolve,
                lookups=self._lookups,
                network=self._network,
            )
            pool = self._pools[tenant] = httpcore.AsyncConnectionPool(
                ssl_context=self._tls,
                max_connections=self._config.connections_each,
                keepalive_expiry=self._config.keep_alive_s,
                network_backend=backend,
            )
        self._pools.move_to_end(tenant)
        if is_new:
            await self._make_room(beside=tenant)
        return pool

    async def _make_room(self, *, beside: TenantId) -> None:
        idle = [
            tenant
            for tenant, pool in self._pools.items()
            if tenant != beside and all(map(_is_unused, pool.connections))
        ]
        for tenant in idle[: max(0, len(self._pools) - MAX_POOLS)]:
            await self._pools.pop(tenant).aclose()


def _is_unused(connection: httpcore.AsyncConnectionInterface) -> bool:
    return connection.is_idle() or connection.is_closed()


async def _discard(response: HttpResponse) -> None:
    """Close a response that nobody wants; a short one to its end, so that its connection stays."""
    assert not isinstance(response.body, bytes)
    num_bytes = 0
    try:
        async for piece in response.body:
            num_bytes += len(piece)
            if num_bytes > MAX_DISCARDED_BYTES:
                break
    finally:
        await response.body.aclose()


def _failed(error: Exception, request: OutboundRequest) -> CallRefused:
    host = shown(request.host)
    match error:
        case Unreachable():
            return CallRefused(
                "ConnectionError", f"fetch: {host} has no address that workers may reach"
            )
        case httpcore.TimeoutException():
            return CallRefused("TimeoutError", f"fetch: {host} did not answer in time")
        case _ if _is_of_tls(error):
            return CallRefused("ConnectionError", f"fetch: {host} could not prove who it is")
        case _:
            return CallRefused("ConnectionError", f"fetch: the connection to {host} failed")


def _is_of_tls(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


@asynccontextmanager
async def open_outbound(
    config: OutboundConfig,
    *,
    resolve: Resolve | None = None,
    network: httpcore.AsyncNetworkBackend | None = None,
) -> AsyncIterator[OutboundClient]:
    """Open what sends requests; leaving closes all connections."""
    client = OutboundClient(config, resolve=resolve or system_resolver(), network=network)
    try:
        yield client
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()
