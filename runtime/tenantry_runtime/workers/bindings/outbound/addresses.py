"""Which addresses are the public internet's.

Of IPv4 what IANA's registry of special purposes has is denied, of IPv6 all but global unicast without
what is special in it. An IPv6 address that stands for an IPv4 one is as public as that.
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_NOT_PUBLIC_V4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' own
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols'
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "168.63.129.16/32",  # Azure's own services
    )
]

_GLOBAL_UNICAST = IPv6Network("2000::/3")

_NOT_PUBLIC_V6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocols', Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
]

_NAT64 = IPv6Network("64:ff9b::/96")
_MAPPED = IPv6Network("::ffff:0:0/96")


def is_public(address: Address) -> bool:
    """Say whether an address is anybody's on the internet."""
    if isinstance(address, IPv6Address):
        if (meant := _meant(address)) is not None:
            return is_public(meant)
        if address.scope_id is not None or address not in _GLOBAL_UNICAST:
            return False
        return not any(address in network for network in _NOT_PUBLIC_V6)
    return not any(address in network for network in _NOT_PUBLIC_V4)


def plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one only wraps, else the address."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def spellings(address: Address) -> tuple[Address, ...]:
    """Return an address, and the IPv4 one that it stands for where it does."""
    meant = _meant(address) if isinstance(address, IPv6Address) else None
    return (address,) if meant is None else (address, meant)


def _meant(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a mapped one wraps, or a translator (NAT64) makes of one."""
    if address in _MAPPED or address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def parse(text: str) -> Address | None:
    """Return what a resolver answers as an address; None for anything else."""
    try:
        return plain(ipaddress.ip_address(text))
    except ValueError:
        return None
