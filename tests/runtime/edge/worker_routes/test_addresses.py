from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tenantry_runtime.edge.worker_routes import Address, WorkerUrls
from tenantry_runtime.edge.worker_routes.addresses import is_possible, without_port

URLS = WorkerUrls(routed=["shop.example"])


@pytest.mark.parametrize(
    "host", [b"hello.acme.localhost", b"hello.acme.localhost:8787", b"HELLO.Acme.LocalHost."]
)
def test_a_host_below_the_domain_names_worker_and_account(host: bytes) -> None:
    assert URLS.of_host(host, b"/a%2Fb") == Address("acme", "hello", b"/a%2Fb")


@pytest.mark.parametrize(
    "host",
    [
        b"localhost:8787",
        b"127.0.0.1:8787",
        b"acme.localhost",
        b"a.b.c.localhost",
        b"[::1]:8787",
        b"",
    ],
)
def test_other_hosts_name_none(host: bytes) -> None:
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


@given(host=st.binary(max_size=80), path=st.binary(max_size=80).map(b"/".__add__))
def test_any_host_and_path_name_a_worker_or_none(host: bytes, path: bytes) -> None:
    for address in (URLS.of_host(host, path), URLS.of_path(path)):
        assert address is None or isinstance(address, Address)
    by_path = URLS.of_path(path)
    if by_path is not None:
        assert is_possible(by_path.account, by_path.worker)
        assert by_path.path.startswith(b"/")
    assert URLS.may_be_routed(without_port(host)) in (True, False)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a.b", "-a", "a" * 64, "\xe4", "a\n"])
def test_what_is_no_name_is_not_asked_for(name: str) -> None:
    assert not is_possible("acme", name)
