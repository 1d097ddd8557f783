from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.edge.worker_routes import Address, WorkerUrls
from tenantry_runtime.edge.worker_routes.addresses import is_possible
from tenantry_runtime.edge.worker_routes.authority import read_authority
from tenantry_runtime.edge.worker_routes.pages import Refused

URLS = WorkerUrls(routed=["shop.example"])


def test_a_host_below_the_domain_names_worker_and_account() -> None:
    address = Address("acme", "hello", b"/a%2Fb")
    assert URLS.of_host("hello.acme.localhost", b"/a%2Fb") == address


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "127.0.0.1",
        "acme.localhost",
        "a.b.c.localhost",
        "hello.acme.localhost.example",
        "[::1]",
        "",
    ],
)
def test_other_hosts_name_none(host: str) -> None:
    assert URLS.of_host(host, b"/") is None


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (b"/workers/acme/hello", Address("acme", "hello", b"/", "/workers/acme/hello")),
        (b"/workers/acme/hello/", Address("acme", "hello", b"/", "/workers/acme/hello")),
        (
            b"/workers/acme/he_llo-2/a//b",
            Address("acme", "he_llo-2", b"/a//b", "/workers/acme/he_llo-2"),
        ),
    ],
)
def test_a_path_names_account_and_worker_and_the_worker_sees_the_rest(
    path: bytes, address: Address
) -> None:
    assert URLS.of_path(path) == address


@pytest.mark.parametrize(
    "path",
    [
        b"/workers",
        b"/workers/",
        b"/workers/acme",
        b"/workers//hello",
        b"/workers/acme/../x",
        b"/workers/acme/%2e%2e",
    ],
)
def test_other_paths_name_none(path: bytes) -> None:
    assert URLS.of_path(path) is None


def test_routes_are_looked_for_at_their_domains_alone() -> None:
    assert URLS.may_be_routed("www.shop.example")
    assert URLS.may_be_routed("shop.example")
    assert not URLS.may_be_routed("notshop.example")
    assert not URLS.may_be_routed("127.0.0.1")
    assert not URLS.may_be_routed("localhost")


def test_an_accounts_host_is_for_its_own_workers_alone() -> None:
    assert URLS.is_tenants("acme.localhost")
    assert URLS.is_tenants("www.shop.example")
    assert not URLS.is_tenants("localhost")
    assert not URLS.is_tenants("edge.example")


@given(host=st.text(max_size=80), path=st.binary(max_size=80).map(b"/".__add__))
def test_any_host_and_path_name_a_worker_or_none(host: str, path: bytes) -> None:
    for address in (URLS.of_host(host, path), URLS.of_path(path)):
        assert address is None or isinstance(address, Address)
    by_path = URLS.of_path(path)
    if by_path is not None:
        assert is_possible(by_path.account, by_path.worker)
        assert by_path.path.startswith(b"/")
    assert URLS.may_be_routed(host) in (True, False)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a.b", "-a", "a" * 64, "\xe4", "a\n"])
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    assert not is_possible("acme", name)


@pytest.mark.parametrize(
    ("text", "authority"),
    [
        (b"shop.example", "shop.example"),
        (b"SHOP.Example.", "shop.example"),
        (b"shop.example.:08787", "shop.example:8787"),
        (b"shop.example:", "shop.example"),
        (b"he_llo.acme.localhost:65535", "he_llo.acme.localhost:65535"),
        (b"127.0.0.1:0", "127.0.0.1:0"),
        (b"[::1]", "[::1]"),
        (b"[2001:DB8:0:0::1]:80", "[2001:db8::1]:80"),
        (b"[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    ],
)
def test_a_host_is_read_as_the_one_way_to_write_it(text: bytes, authority: str) -> None:
    assert str(read_authority(text)) == authority


NO_HOSTS = [
    b"",
    b" ",
    b".",
    b"..",
    b"a..b",
    b".shop.example",
    b"shop.example..",
    b"shop.example:8787@evil",
    b"user@shop.example",
    b"user:pass@shop.example",
    b"shop.example:99999",
    b"shop.example:-1",
    b"shop.example:80:80",
    b"shop.example:\xb2",
    b"shop%2eexample",
    b"shop.example%00",
    b"shop.example/evil",
    b"shop.example?evil",
    b"shop.example#evil",
    b"shop.example\\evil",
    b"shop.example evil",
    b"shop.example\tevil",
    b"shop.example, evil.example",
    b"shop.example\n",
    b"http://shop.example",
    b"sh\xf6p.example",
    b"::1",
    b"[::1",
    b"[::1]x",
    b"[::1%25eth0]",
    b"[1.2.3.4]",
    b"[::1]@evil",
    b"a" * 254,
]


@pytest.mark.parametrize("text", NO_HOSTS)
def test_what_is_no_host_and_port_is_refused(text: bytes) -> None:
    with pytest.raises(Refused) as refused:
        read_authority(text)
    assert refused.value.status == 400


@given(text=st.binary(max_size=80) | st.text("aB.:[]@%0", max_size=20).map(str.encode))
def test_a_host_that_is_read_is_one_to_every_reader(text: bytes) -> None:
    try:
        authority = read_authority(text)
    except Refused:
        return
    url = urlsplit(f"http://{authority}/@evil")
    assert url.hostname == authority.name.strip("[]")
    assert url.port == authority.port
    assert (url.username, url.path) == (None, "/@evil")
    assert read_authority(str(authority).encode()) == authority
