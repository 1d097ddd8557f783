"""Workers' requests: redirects, connections, proxies, and proof of who answers."""

from __future__ import annotations

import ssl
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream

from support.bindings import OTHER_TENANT, whole
from support.byte_streams import Pieces
from support.web import (
    Heard,
    Names,
    a_server,
    a_web,
    an_outbound,
    answering,
    redirecting,
)
from tenantry_runtime.core import TenantId
from tenantry_runtime.pool.certificates import make_certificate
from tenantry_runtime.workers.bindings.outbound import client
from tenantry_runtime.workers.interface import CallRefused

PATIENCE_S = 30.0
BROKEN = r"the connection to 'web\.test' failed"


@pytest.mark.asyncio
async def test_a_response_comes_with_status_headers_and_its_url() -> None:
    fields = [
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("X-One", "caf\xe9".encode("latin-1").decode("latin-1")),
        ("Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authenticate", "Basic"),
    ]
    respond = answering(b"no", status="418 Short and stout", headers=fields)
    async with a_web(respond) as (_, worker, url):
        response = await worker.fetch(f"{url}a b?q=ü#part")
        body = await whole(response)

    assert (response.status, body, response.url) == (418, b"no", f"{url}a%20b?q=%C3%BC")
    assert list(response.headers) == [
        ("content-length", "2"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-one", "cafÃ©"),
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (303, "HEAD", "HEAD"),
        (302, "PUT", "PUT"),
        (307, "POST", "POST"),
        (308, "POST", "POST"),
    ],
)
async def test_a_redirect_changes_the_method_as_browsers_do(
    status: int, method: str, then: str
) -> None:
    async def respond(heard: Heard, stream: ByteStream) -> None:
        there = answering(b"" if heard.method == "HEAD" else b"there")
        await (redirecting("/there", status) if heard.target == "/" else there)(heard, stream)

    async with a_web(respond) as (server, worker, url):
        body = None if method == "HEAD" else b"body"
        headers = [["content-type", "text/plain"], ["authorization", "Bearer x"]]
        response = await worker.fetch(url, method=method, headers=headers, body=body)
        await whole(response)

    first, second = server.heard
    assert (first.method, second.method, second.target) == (method, then, "/there")
    is_kept = then == method and body is not None
    assert second.body == (b"body" if is_kept else b"")
    assert second.all("content-type") == (["text/plain"] if then == method else [])
    assert second.all("authorization") == ["Bearer x"]
    assert response.url == f"{url}there"
    # what was answered in between did not cost a connection
    assert server.num_connections == 1


@pytest.mark.asyncio
async def test_a_redirect_to_another_origin_takes_no_secrets_along() -> None:
    async def respond(heard: Heard, stream: ByteStream) -> None:
        is_first = heard.all("host") == [f"web.test:{server.port}"]
        there = redirecting(f"http://other.test:{server.port}/")
        await (there if is_first else answering())(heard, stream)

    async with a_web(respond) as (server, worker, url):
        headers = [["Authorization", "Bearer x"], ["Cookie", "a=1"], ["X-Mine", "1"]]
        await whole(await worker.fetch(url, headers=headers))

    _, second = server.heard
    assert second.all("authorization") == second.all("cookie") == []
    assert second.all("x-mine") == ["1"]


@pytest.mark.asyncio
async def test_redirects_end_somewhere() -> None:
    async with a_web(redirecting("/"), max_redirects=3) as (server, worker, url):
        with pytest.raises(CallRefused, match="more than 3 redirects"):
            await worker.fetch(url)
    assert len(server.heard) == 4


@pytest.mark.asyncio
async def test_redirects_are_followed_or_handed_out_or_refused_as_asked() -> None:
    async with a_web(redirecting("http://10.0.0.1/")) as (server, worker, url):
        response = await worker.fetch(url, redirect="manual")
        await whole(response)
        assert response.status == 302
        assert dict(response.headers)["location"] == "http://10.0.0.1/"
        with pytest.raises(CallRefused, match="redirect: error"):
            await worker.fetch(url, redirect="error")
        with pytest.raises(CallRefused, match="which was a stream"):
            await worker.fetch(url, method="PUT", stream=Pieces(b"x"))
    assert len(server.heard) == 3


@pytest.mark.asyncio
async def test_a_tenants_connections_are_kept_for_it_alone() -> None:
    async with a_web(answering()) as (server, worker, url):
        for each in (worker, worker, worker.of(OTHER_TENANT), worker):
            await whole(await each.fetch(url))
    assert [heard.connection for heard in server.heard] == [1, 1, 2, 1]


@pytest.mark.asyncio
async def test_the_connections_of_one_that_rests_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_POOLS", 1)
    async with a_web(answering()) as (server, worker, url):
        unread = await worker.fetch(url)
        await whole(await worker.of(OTHER_TENANT).fetch(url))
        # whoever has a connection in use keeps it
        await whole(unread)
        await whole(await worker.fetch(url))
        await whole(await worker.of(TenantId("third")).fetch(url))
        await whole(await worker.fetch(url))
    assert [heard.connection for heard in server.heard] == [1, 2, 1, 3, 4]


@pytest.mark.asyncio
async def test_a_port_where_nobody_listens_is_an_error_of_the_connection() -> None:
    async with a_server(answering()) as gone:
        pass
    async with an_outbound(Names(web_test=["127.0.0.1"])) as worker:
        with pytest.raises(CallRefused, match=BROKEN):
            await worker.fetch(f"http://web.test:{gone.port}/")


@pytest.mark.asyncio
async def test_a_server_proves_that_it_is_whose_name_the_url_has(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "web.test")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.certificate, files.key)
    names = Names(web_test=["127.0.0.1"], other_test=["127.0.0.1"])
    async with a_server(answering(), tls) as server:
        async with an_outbound(names, ca_file=files.ca) as worker:
            assert await whole(await worker.fetch(f"https://web.test:{server.port}/")) == b"hello"
            # the address is the same, the name is not
            with pytest.raises(CallRefused, match="could not prove who it is"):
                await worker.fetch(f"https://other.test:{server.port}/")
        async with an_outbound(names) as worker:
            with pytest.raises(CallRefused, match="could not prove who it is"):
                await worker.fetch(f"https://web.test:{server.port}/")
    assert [heard.all("host") for heard in server.heard] == [[f"web.test:{server.port}"]]


@pytest.mark.asyncio
async def test_a_proxy_is_asked_for_the_address_that_was_checked() -> None:
    async def relay(heard: Heard, stream: ByteStream) -> None:
        if heard.method != "CONNECT":
            await answering(b"through")(heard, stream)
            return
        await stream.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

    # it answers by itself what comes through it
    async with a_server(relay) as proxy:
        names = Names(web_test=["8.8.8.8"], inside_test=["10.0.0.1"], six_test=["2606:4700::1"])
        url = f"http://us%40er:pass@127.0.0.1:{proxy.port}"
        async with an_outbound(names, proxy=url) as worker:
            assert await whole(await worker.fetch("http://web.test/path")) == b"through"
            assert await whole(await worker.fetch("http://six.test:81/")) == b"through"
            with pytest.raises(CallRefused, match="no address"):
                await worker.fetch("http://inside.test/")
    asked = [(heard.method, heard.target, heard.all("host")) for heard in proxy.heard]
    assert asked == [
        ("CONNECT", "8.8.8.8:80", ["8.8.8.8:80"]),
        ("GET", "/path", ["web.test"]),
        ("CONNECT", "[2606:4700::1]:81", ["[2606:4700::1]:81"]),
        ("GET", "/", ["six.test:81"]),
    ]
    # base64 of "us@er:pass"
    assert proxy.heard[0].all("proxy-authorization") == ["Basic dXNAZXI6cGFzcw=="]
    assert proxy.heard[1].all("proxy-authorization") == []


@pytest.mark.asyncio
async def test_a_proxy_that_refuses_is_an_error_of_the_connection() -> None:
    async with a_server(answering(status="403 Forbidden")) as proxy:
        proxy_url = f"http://127.0.0.1:{proxy.port}"
        async with an_outbound(Names(web_test=["8.8.8.8"]), proxy=proxy_url) as worker:
            with pytest.raises(CallRefused, match=BROKEN):
                await worker.fetch("http://web.test/")


@pytest.mark.asyncio
async def test_names_that_are_slow_to_look_up_hold_back_their_own_tenant_only() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if host == "slow.test":
            await anyio.sleep_forever()
        return ["127.0.0.1"]

    async with a_server(answering()) as server:
        async with (
            an_outbound(resolve, lookups_each=1) as worker,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(worker.fetch, "http://slow.test/")
            await anyio.wait_all_tasks_blocked()
            url = f"http://web.test:{server.port}/"
            with anyio.fail_after(PATIENCE_S):
                assert await whole(await worker.of(OTHER_TENANT).fetch(url)) == b"hello"
            with anyio.move_on_after(0.1) as waited:
                await worker.fetch(url)
            assert waited.cancelled_caught
            tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_a_name_that_is_looked_up_for_ever_is_given_up() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        raise AssertionError

    async with an_outbound(resolve, dns_s=0.1) as worker:
        with pytest.raises(CallRefused, match="no address"):
            await worker.fetch("http://slow.test/")
