"""What an operator says of workers' outbound requests."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from .addresses import Address, Network

Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Port: TypeAlias = Annotated[int, Meta(ge=1, le=65535)]

_PATTERN = re.compile(r"(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:]*:[0-9a-f:.]*)")


class HostRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of hosts in lower case: `api.example.com`, all below one: `*.example.com`, or all: `*`."""

    allow: tuple[str, ...] = ()
    """Empty: all that are not denied."""
    deny: tuple[str, ...] = ()
    """Beats `allow`."""

    def __post_init__(self) -> None:
        for pattern in (*self.allow, *self.deny):
            if _PATTERN.fullmatch(pattern) is None:
                raise ValueError(f"{pattern!r} is neither a host's name nor *.name")

    def allows(self, host: str) -> bool:
        """Say whether a host, in lower case and without a last dot, may be asked."""
        if any(_matches(pattern, host) for pattern in self.deny):
            return False
        return not self.allow or any(_matches(pattern, host) for pattern in self.allow)


class OutboundConfig(HostRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of all tenants; what a tenant has of its own narrows it."""

    is_enabled: bool = True
    tenants: Mapping[str, HostRules] = msgspec.field(default_factory=dict)
    networks: tuple[str, ...] = ()
    """That may be reached though they are not public: `10.20.0.0/16`."""
    deny_networks: tuple[str, ...] = ()
    """That may not, though they are public. Beats `networks`."""
    deny_ports: tuple[Port, ...] = (25,)
    """25: what sends mail for everybody is soon on every list of those that do."""
    proxy: str | None = None
    """`http://[user:password@]host:port`, which is asked by CONNECT for addresses that have been checked."""
    ca_file: str | None = None
    """PEM; None: the authorities that browsers trust."""

    dns_s: Seconds = 5.0
    connect_s: Seconds = 10.0
    """With TLS."""
    idle_s: Seconds = 120.0
    """From a request's end to its response's head, and between pieces of either."""
    max_request_bytes: Count = 256 << 20
    max_response_bytes: Count = 1 << 30
    """Unpacked."""
    max_redirects: Count = 20
    connections_each: Count = 64
    """Of one tenant, over all its workers."""
    lookups_each: Count = 4
    """Names that are looked up for one tenant at one time."""
    keep_alive_s: Seconds = 3.0
    """Connections, which no other tenant uses; shorter than servers keep them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for network in (*self.networks, *self.deny_networks):
            ipaddress.ip_network(network)
        if self.proxy is not None:
            parts = urlsplit(self.proxy)
            if parts.scheme != "http" or not parts.hostname or parts.port is None:
                raise ValueError(f"proxy {self.proxy!r} must be http://host:port")

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(network) for network in self.networks)

    @property
    def denied_networks(self) -> tuple[Network, ...]:
        return tuple(ipaddress.ip_network(network) for network in self.deny_networks)

    def allows_host(self, tenant: str, host: str) -> bool:
        """Say whether a tenant may ask a host, wherever its name leads."""
        name = host.lower().rstrip(".")
        rules = self.tenants.get(tenant)
        return self.allows(name) and (rules is None or rules.allows(name))

    def allows_port(self, port: int) -> bool:
        return port not in self.deny_ports


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return pattern in ("*", host)


def is_within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)
