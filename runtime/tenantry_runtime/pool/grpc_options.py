"""The gRPC settings that edge and node must agree on, the names on the wire, and how calls end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from .frames import MAX_FRAME_BYTES
from .liveness import KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S
from .messages import SERVICE
from .tls import TlsFiles, is_unix, require_safe

HELLO = f"/{SERVICE}/Hello"
WORK = f"/{SERVICE}/Work"
STATISTICS = f"/{SERVICE}/Statistics"
PAGES = f"/{SERVICE}/Pages"
PUSH = f"/{SERVICE}/Push"
DRAIN = f"/{SERVICE}/Drain"

INCARNATION_KEY = "tenantry-incarnation"
"""Metadata of a Work call: the life of the node that the edge has shaken hands with."""

WINDOW_BYTES = 1 << 18
"""What a peer may send on a stream that nobody reads. Left to grow by itself, gRPC's window becomes
megabytes: minutes of tokens. 256 KiB let a frame cross a 1 ms network in four round trips."""

NODE_WINDOW_BYTES = 4 << 20
"""The same of streams into a node, whose bulk is pages: they come against credit, so that what nobody
reads is bounded by that. Four frames may be under way."""

CALL_IS_OVER = (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError)
"""What a write to a call raises that is over; why it is, who reads from it knows."""

_FRAME_LIMITS = [
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES + 1),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES + 1),
    ("grpc.http2.bdp_probe", 0),
]


def server_options() -> list[tuple[str, int]]:
    return [
        *_FRAME_LIMITS,
        ("grpc.http2.lookahead_bytes", NODE_WINDOW_BYTES),
        *_keepalive(KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S),
        # edges ping also while they wait for nothing
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        # a second node on a TCP port in use must fail, not take every other connection
        ("grpc.so_reuseport", 0),
    ]


def channel_options(
    interval_s: float = KEEPALIVE_INTERVAL_S, timeout_s: float = KEEPALIVE_TIMEOUT_S
) -> list[tuple[str, int]]:
    return [
        *_FRAME_LIMITS,
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        *_keepalive(interval_s, timeout_s),
        ("grpc.http2.max_pings_without_data", 0),
        # each attempt to connect is a channel of its own, with this package's backoff
        ("grpc.use_local_subchannel_pool", 1),
    ]


# grpc has no types
def channel_for(
    address: str,
    tls: TlsFiles | None = None,
    *,
    options: Sequence[tuple[str, int]] | None = None,
) -> Any:
    """Make a channel to a node; raise `ConfigurationError` where `tls.require_safe` does."""
    require_safe(address, tls)
    chosen = channel_options() if options is None else options
    if tls is None or is_unix(address):
        return grpc.aio.insecure_channel(address, options=chosen)
    return grpc.aio.secure_channel(address, _client_credentials(tls), options=chosen)


def server_credentials(tls: TlsFiles) -> Any:
    ca, certificate, key = tls.read()
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=ca, require_client_auth=True
    )


def _client_credentials(tls: TlsFiles) -> Any:
    ca, certificate, key = tls.read()
    return grpc.ssl_channel_credentials(ca, key, certificate)


def _keepalive(interval_s: float, timeout_s: float) -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", round(interval_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(timeout_s * 1000)),
        # left at a minute, it keeps a connection whose ping is not answered
        ("grpc.http2.ping_timeout_ms", round(timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
