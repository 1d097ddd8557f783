"""One host a request: by it the request is routed, and of it and nothing else the worker's URL is made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest

from support.worker_routes import (
    ACCOUNT,
    RoutedEdge,
    TableSource,
    a_routed_edge,
    answering,
    deployed,
)
from tenantry_runtime.core import TenantId

pytestmark = pytest.mark.asyncio

OTHER = TenantId("other")


@asynccontextmanager
async def two_tenants() -> AsyncIterator[RoutedEdge]:
    """Serve `hello` of two accounts; acme has routes at shop.example as well."""
    source = TableSource(
        {(ACCOUNT, "hello"): deployed(), (OTHER, "hello"): deployed()},
        {("shop.example", "/"): (ACCOUNT, "hello")},
    )
    async with a_routed_edge(answering(), source=source) as edge:
        yield edge


async def sent(edge: RoutedEdge, *lines: str) -> bytes:
    """Send a request as it is, without a body; return all that comes back."""
    async with await anyio.connect_tcp("127.0.0.1", edge.port) as stream:
        await stream.send("\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1"))
        read = b""
        with anyio.fail_after(10):
            try:
                while True:
                    read += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return read


def seen(edge: RoutedEdge) -> tuple[str, list[str]]:
    """Return the URL and the values of `Host` that the one worker saw that was called."""
    ((_, request, _),) = edge.engine.requests
    return request.url, [value for name, value in request.headers if name == "host"]


@pytest.mark.parametrize(
    "hosts",
    [
        ("hello.acme.localhost", "hello.other.localhost"),
        ("hello.acme.localhost", "hello.acme.localhost"),
        ("127.0.0.1", "hello.acme.localhost"),
        ("", "hello.acme.localhost"),
        ("hello.acme.localhost:8787@evil",),
        ("evil@hello.acme.localhost",),
        ("hello.acme.localhost:99999",),
        ("hello.acme.localhost, hello.other.localhost",),
        ("hello%2eacme.localhost",),
        ("<b>.acme.localhost",),
        ("[::1",),
        ("",),
    ],
)
@pytest.mark.parametrize("path", ["/", "/workers/acme/hello/", "/v1/models"])
async def test_a_request_for_no_one_host_is_refused_wherever_it_leads(
    hosts: tuple[str, ...], path: str
) -> None:
    async with two_tenants() as edge:
        told = await sent(edge, f"GET {path} HTTP/1.1", *(f"Host: {host}" for host in hosts))
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"<b>" not in told
    assert edge.engine.requests == []


async def test_a_request_without_a_host_is_one_of_the_first_version_and_for_a_path_alone() -> None:
    async with two_tenants() as edge:
        assert (await sent(edge, "GET / HTTP/1.1")).startswith(b"HTTP/1.1 400 ")
        assert b"the edge's own" in await sent(edge, "GET / HTTP/1.0")
        await sent(edge, "GET /workers/acme/hello/x HTTP/1.0")
    assert seen(edge) == ("http://localhost/x", ["localhost"])


@pytest.mark.parametrize(
    "host",
    ["HELLO.Acme.LocalHost:8787", "hello.acme.localhost.:8787", "hello.acme.localhost:08787"],
)
async def test_the_worker_sees_the_host_in_the_form_by_which_it_was_found(host: str) -> None:
    async with two_tenants() as edge:
        await sent(edge, "GET /a HTTP/1.1", f"Host: {host}")
    url = "http://hello.acme.localhost:8787/a"
    assert seen(edge) == (url, ["hello.acme.localhost:8787"])


async def test_a_whole_url_as_the_target_names_the_host_where_no_header_does() -> None:
    async with two_tenants() as edge:
        await sent(edge, "GET http://hello.acme.localhost:8787/a?b HTTP/1.1")
    url = "http://hello.acme.localhost:8787/a?b"
    assert seen(edge) == (url, ["hello.acme.localhost:8787"])


async def test_users_in_a_whole_url_are_refused() -> None:
    async with two_tenants() as edge:
        told = await sent(edge, "GET http://evil@hello.acme.localhost/ HTTP/1.1")
    assert told.startswith(b"HTTP/1.1 400 ")


async def test_whose_worker_answers_and_what_url_it_sees_never_differ() -> None:
    async with two_tenants() as edge:
        await sent(edge, "GET http://hello.other.localhost/ HTTP/1.1", "Host: hello.acme.localhost")
    assert edge.engine.requests[0][0].tenant == ACCOUNT
    assert seen(edge) == ("http://hello.acme.localhost/", ["hello.acme.localhost"])


async def test_no_header_of_a_client_says_what_the_edge_says() -> None:
    forged = {
        "x-forwarded-host": "evil.example",
        "x-forwarded-proto": "https",
        "x-forwarded-port": "444",
        "x-forwarded-server": "evil.example",
        "x-forwarded-prefix": "/evil",
        "forwarded": "host=evil.example;proto=https",
        "x-real-ip": "8.8.8.8",
    }
    async with two_tenants() as edge:
        await edge.get(headers=forged)
        await edge.get("/workers/acme/hello/", "127.0.0.1", headers=forged)
    for _, request, _ in edge.engine.requests:
        assert not any("evil" in value for _, value in request.headers)
        assert request.url.startswith("http://")
        names = [name for name, _ in request.headers]
        assert [value for name, value in request.headers if name == "x-forwarded-proto"] == ["http"]
        assert {"x-forwarded-host", "x-forwarded-port", "forwarded", "x-real-ip"}.isdisjoint(names)
    by_host, by_path = (dict(request.headers) for _, request, _ in edge.engine.requests)
    assert "x-forwarded-prefix" not in by_host
    assert by_path["x-forwarded-prefix"] == "/workers/acme/hello"


async def test_who_asks_is_the_last_of_those_it_says_it_asks_for() -> None:
    async with two_tenants() as edge:
        await sent(
            edge,
            "GET / HTTP/1.1",
            "Host: hello.acme.localhost",
            "X-Forwarded-For: 8.8.8.8",
            "X-Forwarded-For: 9.9.9.9",
        )
    ((_, request, _),) = edge.engine.requests
    values = [value for name, value in request.headers if name == "x-forwarded-for"]
    assert values == ["8.8.8.8, 9.9.9.9, 127.0.0.1"]


async def test_every_header_that_names_headers_of_the_connection_is_heard() -> None:
    async with two_tenants() as edge:
        await sent(
            edge,
            "GET / HTTP/1.1",
            "Host: hello.acme.localhost",
            "Connection: x-first",
            "Connection: host, cf-connecting-ip",
            "X-First: 1",
        )
    ((_, request, _),) = edge.engine.requests
    values = dict(request.headers)
    assert "x-first" not in values
    assert values["host"] == "hello.acme.localhost"
    assert values["cf-connecting-ip"] == "127.0.0.1"


@pytest.mark.parametrize("host", ["acme.localhost", "shop.example", "www.shop.example:8787"])
async def test_at_an_accounts_host_no_other_accounts_worker_answers_by_its_path(host: str) -> None:
    async with two_tenants() as edge:
        told = await edge.get("/workers/other/hello/", host)
        page = await edge.get("/workers/other/hello/", "127.0.0.1")
    assert told.content == b"the edge's own"
    assert page.content == b"hello"


@pytest.mark.parametrize(
    "path",
    [
        "/workers/%61cme/hello",
        "/workers/acme%2fhello/",
        "/workers//acme/hello",
        "//workers/acme/hello",
        "/./workers/acme/hello",
        "/workers/ACME/hello",
        "/workers/acme/hello@evil/",
        "/workers/acme/hello\\..\\other",
        "/workers/acme/hello;x",
        "/x/../workers/acme/hello",
    ],
)
async def test_paths_are_not_made_into_names_of_workers(path: str) -> None:
    async with two_tenants() as edge:
        assert b"the edge's own" in await sent(edge, f"GET {path} HTTP/1.1", "Host: 127.0.0.1")
    assert edge.engine.requests == []


@pytest.mark.parametrize("path", ["//evil.example/x", "/@evil.example", "/..//evil.example"])
async def test_a_path_stays_a_path_in_the_url(path: str) -> None:
    async with two_tenants() as edge:
        await sent(edge, f"GET {path} HTTP/1.1", "Host: hello.acme.localhost")
        await sent(edge, f"GET /workers/acme/hello{path} HTTP/1.1", "Host: 127.0.0.1")
    for _, request, _ in edge.engine.requests:
        assert httpx.URL(request.url).host in ("hello.acme.localhost", "127.0.0.1")
        assert request.url.endswith(path)


async def test_a_worker_is_no_proxy() -> None:
    async with two_tenants() as edge:
        told = await sent(edge, "CONNECT evil.example:443 HTTP/1.1", "Host: hello.acme.localhost")
    assert told.startswith(b"HTTP/1.1 405 ")
    assert edge.engine.requests == []
