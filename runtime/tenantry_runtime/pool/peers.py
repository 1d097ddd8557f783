"""Connections from this node to others: one per address, made when first needed, and kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from .grpc_options import channel_for, channel_options
from .tls import TlsFiles

MAX_IDLE = 64
"""Connections that nobody uses; the one unused for longest is closed for the next."""

# a peer that has restarted is found at once, not after gRPC's two minutes
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@asynccontextmanager
async def connected_peers(tls: TlsFiles | None = None) -> AsyncIterator[Peers]:
    """Close all connections on leaving; who uses them has left before."""
    peers = Peers(tls)
    try:
        yield peers
    finally:
        with anyio.CancelScope(shield=True):
            await peers.close()


@dataclass(slots=True, eq=False)
class _Peer:
    # grpc has no types
    channel: Any
    num_users: int = 0


class Peers:
    """Channels by address; `use` keeps one open, the rest are closed when there are many."""

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._tls = tls
        self._peers: dict[str, _Peer] = {}
        """Those used last come last."""

    @asynccontextmanager
    async def use(self, address: str) -> AsyncIterator[Any]:
        """Yield the channel to an address; raise `ConfigurationError` for one that may not be used."""
        peer = self._peers.pop(address, None) or _Peer(self._connected(address))
        self._peers[address] = peer
        peer.num_users += 1
        try:
            yield peer.channel
        finally:
            peer.num_users -= 1
            with anyio.CancelScope(shield=True):
                await self._close_unused(MAX_IDLE)

    async def close(self) -> None:
        """Close what nobody uses."""
        await self._close_unused(0)

    def _connected(self, address: str) -> Any:
        return channel_for(address, self._tls, options=[*channel_options(), *_RECONNECT])

    async def _close_unused(self, num_kept: int) -> None:
        unused = [address for address, peer in self._peers.items() if not peer.num_users]
        peers = [self._peers.pop(address) for address in unused[: max(0, len(unused) - num_kept)]]
        for peer in peers:
            await peer.channel.close()
