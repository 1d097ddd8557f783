"""Connections to addresses that have been checked.

A name is looked up here, once, for each connection, and the connection goes to an address of that
answer that may be reached: what the name leads to a moment later changes nothing. How a URL writes an
address changes nothing either, as only what it resolves to counts.
"""

from __future__ import annotations

import base64
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread
import httpcore

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.bindings.places import Places

from .addresses import Address, is_public, parse, spellings
from .config import OutboundConfig, is_within

NUM_LOOKUPS = 32
"""Threads that wait for the resolver, of all tenants."""
MAX_ADDRESSES = 4
"""Of a name's, that are tried."""
MAX_HEAD_BYTES = 16 << 10
"""Of a proxy's answer."""

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a name, the best first; raises `OSError` where there are none."""


class Unreachable(Exception):
    """No address of a host may be reached, or it has none; which is nobody's business."""


def system_resolver() -> Resolve:
    """Return one that asks what the machine asks, in threads of its own."""
    limiter = anyio.CapacityLimiter(NUM_LOOKUPS)

    async def resolve(host: str, port: int) -> list[str]:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await anyio.to_thread.run_sync(look_up, limiter=limiter, abandon_on_cancel=True)
        return list(dict.fromkeys(str(each[4][0]) for each in found))

    return resolve


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects for one tenant. What a pool of connections is given instead of the network."""

    def __init__(
        self,
        tenant: TenantId,
        config: OutboundConfig,
        *,
        resolve: Resolve,
        lookups: Places,
        network: httpcore.AsyncNetworkBackend,
    ) -> None:
        self._tenant = tenant
        self._config = config
        self._resolve = resolve
        self._lookups = lookups
        self._network = network
        self._allowed = config.allowed_networks
        self._denied = config.denied_networks

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 -- the name is httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to an address of a host. Raises `Unreachable`, and what httpcore's own raises."""
        problem: Exception = Unreachable()
        with anyio.move_on_after(self._config.connect_s):
            for address in await self._addresses(host, port):
                try:
                    return await self._connect(address, port)
                except (httpcore.ConnectError, httpcore.ConnectTimeout, Unreachable) as error:
                    problem = error
            raise problem
        raise httpcore.ConnectTimeout

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 -- the name is httpcore's
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise Unreachable

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[Address]:
        await self._lookups.take(self._tenant)
        try:
            with anyio.move_on_after(self._config.dns_s):
                found = [parse(each) for each in await self._resolve(host, port)]
                reachable = [each for each in found if each is not None and self._may_reach(each)]
                if reachable:
                    return reachable[:MAX_ADDRESSES]
        except (OSError, UnicodeError) as error:
            raise Unreachable from error
        finally:
            self._lookups.give_back(self._tenant)
        raise Unreachable

    def _may_reach(self, address: Address) -> bool:
        if any(is_within(each, self._denied) for each in spellings(address)):
            return False
        return is_public(address) or is_within(address, self._allowed)

    async def _connect(self, address: Address, port: int) -> httpcore.AsyncNetworkStream:
        each_s = self._config.connect_s / 2
        if self._config.proxy is not None:
            return await self._through_proxy(self._config.proxy, address, port, each_s)
        stream = await self._network.connect_tcp(str(address), port, timeout=each_s)
        if not is_within(address, self._allowed) and _is_this_machine(stream):
            await stream.aclose()
            raise Unreachable
        return stream

    async def _through_proxy(
        self, proxy: str, address: Address, port: int, timeout_s: float
    ) -> httpcore.AsyncNetworkStream:
        parts = urlsplit(proxy)
        assert parts.hostname is not None
        assert parts.port is not None
        stream = await self._network.connect_tcp(parts.hostname, parts.port, timeout=timeout_s)
        try:
            target = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
            head = f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n"
            if parts.username is not None:
                known = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                credentials = base64.b64encode(known.encode()).decode()
                head += f"proxy-authorization: Basic {credentials}\r\n"
            await stream.write(f"{head}\r\n".encode(), timeout=timeout_s)
            await _read_consent(stream, timeout_s)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
            raise
        return stream


async def _read_consent(stream: httpcore.AsyncNetworkStream, timeout_s: float) -> None:
    """Read the answer to CONNECT, and nothing of what comes after it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        # byte by byte: what follows is the server's, not the proxy's
        piece = await stream.read(1, timeout=timeout_s)
        head += piece
        if not piece or len(head) > MAX_HEAD_BYTES:
            raise httpcore.ConnectError("the proxy did not answer")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise httpcore.ConnectError("the proxy refused")


def _is_this_machine(stream: httpcore.AsyncNetworkStream) -> bool:
    """Say whether a connection has come back to where it began: a public address of this machine."""
    ours, theirs = (stream.get_extra_info(name) for name in ("client_addr", "server_addr"))
    if not ours or not theirs:
        return False
    return ipaddress.ip_address(ours[0]) == ipaddress.ip_address(theirs[0])
