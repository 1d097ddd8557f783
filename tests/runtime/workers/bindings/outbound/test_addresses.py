"""Which addresses are the public internet's, by IANA's registries."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from tenantry_runtime.workers.bindings.outbound.addresses import is_public, parse

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "192.167.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    # what IPv6 only wraps is as public as it is by itself
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]

NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.1",
    "169.254.169.254",
    "168.63.129.16",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "ffff::1",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_what_anybody_can_have_is_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_what_is_special_is_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


def test_a_resolvers_answer_is_an_address_or_nothing() -> None:
    assert parse("::ffff:10.0.0.1") == ip_address("10.0.0.1")
    assert parse("8.8.8.8") == ip_address("8.8.8.8")
    for text in ("", "example.com", "0x7f.1", "2130706433", "127.1", "1.1.1.1 ", "[::1]"):
        assert parse(text) is None
