"""Where workers' requests may not go, however they ask for it: nothing is sent there, ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpcore
import pytest

from support.bindings import OTHER_TENANT, TENANT, whole
from support.byte_streams import Pieces
from support.web import Names, NoNetwork, a_server, an_outbound, answering, redirecting
from tenantry_runtime.workers.bindings.outbound.config import HostRules, OutboundConfig
from tenantry_runtime.workers.bindings.outbound.connect import system_resolver
from tenantry_runtime.workers.interface import CallRefused

# each is an address, or a name that every machine has: the system's resolver asks nobody
INSIDE = [
    "http://127.0.0.1/",
    "http://127.0.0.1:8787/client/v4/accounts",
    "http://127.0.0.1./",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0x7f.1/",
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://127。0。0。1/",
    "http://127.0.0.1#@example.com/",
    "http://127.0.0.1?@example.com/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "https://127.0.0.1/",
    "http://10.0.0.1/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://168.63.129.16/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::127.0.0.1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::1]/",
    "http://[2001:db8::1]/",
    "http://[2002:7f00:1::]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fe80::1]/",
    "http://[ff02::1]/",
]

# no request at all
NONE = [
    "",
    "/relative",
    "//example.com/",
    "http:",
    "http://",
    "http:///etc/passwd",
    "file:///etc/passwd",
    "gopher://127.0.0.1:25/",
    "ftp://example.com/",
    "data:text/plain,x",
    "unix:///run/docker.sock",
    "http+unix://%2Frun%2Fdocker.sock/",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://exa mple.com/",
    "http://exam%70le.com/",
    "http://example.com%00.test/",
    "http://example.com/\r\nhost: other",
    "http://example.com\r\n/",
    "http://exa\tmple.com/",
    "http://[::1%25lo]/",
    "http://[fe80::1%eth0]/",
    "http://[::1/",
    "http://①②⑦.0.0.1/",
    "http://0177.0.0.1/",
    "http://256.256.256.256/",
    "http://example.com/" + "x" * 16_384,
]


@pytest.mark.asyncio
async def test_no_way_to_write_an_inside_address_leads_there() -> None:
    network = NoNetwork()
    async with an_outbound(system_resolver(), network=network, networks=()) as worker:
        for url in INSIDE:
            with pytest.raises(CallRefused) as refused:
                await worker.fetch(url)
            assert (url, refused.value.name) == (url, "ConnectionError")
            assert "no address that workers may reach" in refused.value.message
    assert network.asked == []


@pytest.mark.asyncio
async def test_what_is_no_url_of_the_web_is_no_request() -> None:
    network, names = NoNetwork(), Names()
    async with an_outbound(names, network=network) as worker:
        for url in NONE:
            with pytest.raises(CallRefused) as refused:
                await worker.fetch(url)
            assert (url, refused.value.name) == (url, "TypeError")
    assert (network.asked, names.asked) == ([], [])


@pytest.mark.asyncio
async def test_a_name_that_leads_inside_is_like_one_that_leads_nowhere() -> None:
    names = Names(
        inside_test=["10.0.0.1"],
        metadata_test=["169.254.169.254"],
        six_test=["::1"],
        scoped_test=["fe80::1%eth0"],
        odd_test=["not-an-address"],
        empty_test=[""],
    )
    network = NoNetwork()
    messages = set()
    async with an_outbound(names, network=network) as worker:
        for name in ("inside", "metadata", "six", "scoped", "odd", "empty", "nowhere"):
            with pytest.raises(CallRefused) as refused:
                await worker.fetch(f"http://{name}.test/")
            messages.add(refused.value.message.replace(name, "NAME"))
    # nothing is told of what there is inside
    assert len(messages) == 1
    assert network.asked == []


@pytest.mark.asyncio
async def test_of_a_names_addresses_only_those_outside_are_tried() -> None:
    async with a_server(answering()) as server:
        names = Names(mixed_test=["10.0.0.1 127.0.0.2 127.0.0.1 ::1"])
        async with an_outbound(names) as worker:
            response = await worker.fetch(f"http://mixed.test:{server.port}/")
            assert await whole(response) == b"hello"
    assert server.num_connections == 1


@pytest.mark.asyncio
async def test_a_name_that_changes_its_answer_is_believed_once_for_each_connection() -> None:
    closing = answering(headers=[("connection", "close")])
    async with a_server(closing) as server:
        names = Names(rebound_test=["127.0.0.1", "127.0.0.2"])
        async with an_outbound(names) as worker:
            url = f"http://rebound.test:{server.port}/"
            # connected to what was checked, not to what a second question would have answered
            assert await whole(await worker.fetch(url)) == b"hello"
            assert names.asked == ["rebound.test"]
            with pytest.raises(CallRefused, match="no address"):
                await worker.fetch(url)
    assert names.asked == ["rebound.test"] * 2
    assert server.num_connections == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.2/",
        "http://[::1]:8787/",
        "http://169.254.169.254/latest/meta-data/",
        "//10.0.0.1/",
        "http://inside.test/",
    ],
)
async def test_a_redirect_leads_inside_no_more_than_a_request(location: str) -> None:
    async with a_server(redirecting(location)) as server:
        names = Names(web_test=["127.0.0.1"], inside_test=["10.0.0.1"])

        async def resolve(host: str, port: int) -> Sequence[str]:
            return await (names if host.endswith(".test") else system_resolver())(host, port)

        async with an_outbound(resolve) as worker:
            with pytest.raises(CallRefused, match="no address"):
                await worker.fetch(f"http://web.test:{server.port}/")
    assert server.num_connections == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "gopher://x/", "http://a:b@web.test/", "http://\0/"],
)
async def test_a_redirect_to_what_is_no_request_ends_there(location: str) -> None:
    async with a_server(redirecting(location.replace("\0", "%00"))) as server:
        async with an_outbound(Names(web_test=["127.0.0.1"])) as worker:
            with pytest.raises(CallRefused) as refused:
                await worker.fetch(f"http://web.test:{server.port}/")
    assert refused.value.name == "TypeError"
    assert server.num_connections == 1


@pytest.mark.asyncio
async def test_a_redirect_beyond_the_lists_is_denied() -> None:
    async with a_server(redirecting("http://denied.test/")) as server:
        names = Names(web_test=["127.0.0.1"], denied_test=["127.0.0.1"])
        async with an_outbound(names, deny=("denied.test",)) as worker:
            with pytest.raises(CallRefused, match=r"may not ask 'denied\.test'"):
                await worker.fetch(f"http://web.test:{server.port}/")
    assert names.asked == ["web.test"]


@pytest.mark.asyncio
async def test_lists_narrow_the_web_for_all_and_for_one() -> None:
    rules: dict[str, Any] = {
        "allow": ("*.test", "example.com"),
        "deny": ("secret.test",),
        "tenants": {TENANT: HostRules(allow=("api.test",), deny=("x.api.test",))},
    }
    denied = [
        ("http://other.test/", TENANT),
        ("http://secret.test/", OTHER_TENANT),
        ("http://SECRET.test./", OTHER_TENANT),
        ("http://test/", OTHER_TENANT),
        ("http://example.org/", OTHER_TENANT),
        ("http://www.example.com/", OTHER_TENANT),
        ("http://eviltest/", OTHER_TENANT),
        ("http://127.0.0.1/", OTHER_TENANT),
    ]
    allowed = [
        ("http://api.test/", TENANT),
        ("http://Api.Test./", TENANT),
        ("http://other.test/", OTHER_TENANT),
        ("http://a.b.test/", OTHER_TENANT),
        ("http://example.com/", OTHER_TENANT),
    ]
    names = Names()
    async with an_outbound(names, network=NoNetwork(), **rules) as worker:
        for url, tenant in denied:
            with pytest.raises(CallRefused) as refused:
                await worker.of(tenant).fetch(url)
            assert (url, refused.value.name) == (url, "PermissionError")
        assert names.asked == []
        for url, tenant in allowed:
            with pytest.raises(CallRefused) as refused:
                await worker.of(tenant).fetch(url)
            # the name is asked for: of these none is there
            assert (url, refused.value.name) == (url, "ConnectionError")


@pytest.mark.asyncio
async def test_networks_and_ports_are_the_operators_to_open_and_close() -> None:
    names = Names(a_test=["10.1.0.1"], b_test=["8.8.8.8"], c_test=["10.1.2.3"])
    network = NoNetwork()
    opened: dict[str, Any] = {
        "networks": ("10.1.0.0/16",),
        "deny_networks": ("8.8.8.0/24", "10.1.2.0/24"),
        "deny_ports": (25, 6379),
    }
    async with an_outbound(names, network=network, **opened) as worker:
        for url in ("http://a.test/", "http://b.test/", "http://c.test/"):
            with pytest.raises(CallRefused):
                await worker.fetch(url)
        assert network.asked == ["10.1.0.1"]
        for url in ("http://a.test:6379/", "http://a.test:25/"):
            with pytest.raises(CallRefused, match="may not ask"):
                await worker.fetch(url)
    async with an_outbound(names, network=network, is_enabled=False) as worker:
        with pytest.raises(CallRefused, match="may not ask"):
            await worker.fetch("http://a.test/")
    assert network.asked == ["10.1.0.1"]


@pytest.mark.parametrize(
    "settings",
    [
        {"allow": ("https://example.com",)},
        {"deny": ("exa mple.com",)},
        {"allow": ("*example.com",)},
        {"networks": ("10.0.0.1/8",)},
        {"deny_networks": ("example.com",)},
        {"proxy": "https://proxy:3128"},
        {"proxy": "http://proxy"},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        OutboundConfig(**settings)


class _Mirror(httpcore.AsyncMockBackend):
    """Every connection comes back to the address that it went to."""

    async def connect_tcp(
        self, host: str, port: int, *_: Any, **__: Any
    ) -> httpcore.AsyncNetworkStream:
        return _MirrorStream([b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret"], host)


class _MirrorStream(httpcore.AsyncMockStream):
    def __init__(self, sent: list[bytes], host: str) -> None:
        super().__init__(sent)
        self._host = host

    def get_extra_info(self, info: str) -> Any:
        return (self._host, 1) if info in ("client_addr", "server_addr") else None


@pytest.mark.asyncio
async def test_a_public_address_of_this_machine_is_not_outside() -> None:
    names = Names(own_test=["8.8.8.8"], opened_test=["10.0.0.1"])
    async with an_outbound(names, network=_Mirror([]), networks=("10.0.0.0/8",)) as worker:
        with pytest.raises(CallRefused, match="no address"):
            await worker.fetch("http://own.test/")
        # what the operator opens is open
        assert await whole(await worker.fetch("http://opened.test/")) == b"secret"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({"method": "CONNECT"}, "CONNECT is not allowed"),
        ({"method": "TRACE"}, "TRACE is not allowed"),
        ({"method": "track"}, "TRACK is not allowed"),
        ({"method": "GET / HTTP/1.1\r\nhost: x\r\n\r\nGET"}, "is no method"),
        ({"method": ""}, "is no method"),
        ({"method": 7}, "must be a string"),
        ({"url": 7}, "must be a string"),
        ({"url": ["http://a.test/"]}, "must be a string"),
        ({"headers": [["a", "b\r\nc: d"]]}, "what no header may"),
        ({"headers": [["a", "b\nc: d"]]}, "what no header may"),
        ({"headers": [["a", "b\0"]]}, "what no header may"),
        ({"headers": [["a", "\u0430"]]}, "what no header may"),
        ({"headers": [["a\r\nb", "c"]]}, "no name of a header"),
        ({"headers": [["a b", "c"]]}, "no name of a header"),
        ({"headers": [["a:", "c"]]}, "no name of a header"),
        ({"headers": [["", "c"]]}, "no name of a header"),
        ({"headers": [["a", ["b"]]]}, "pair of strings"),
        ({"headers": [["a"]]}, "pair of strings"),
        ({"headers": "a: b"}, "must be a list"),
        ({"headers": [["a", "b"]] * 201}, "at most 200"),
        ({"headers": [["a", "b" * 140_000]]}, "more than 131072 bytes"),
        ({"body": "x"}, "cannot have a body"),
        ({"body": {"a": 1}, "method": "POST"}, "must be bytes"),
        ({"redirect": "always"}, "follow, manual or error"),
        ({"redirect": 7}, "must be a string"),
    ],
)
async def test_what_would_smuggle_is_never_sent(request_: dict[str, Any], text: str) -> None:
    network = NoNetwork()
    async with an_outbound(Names(a_test=["127.0.0.1"]), network=network) as worker:
        with pytest.raises(CallRefused) as refused:
            await worker.fetch(**{"url": "http://a.test/", **request_})
    assert refused.value.name == "TypeError"
    assert text in refused.value.message
    assert network.asked == []


@pytest.mark.asyncio
async def test_what_says_who_asks_and_how_bodies_end_is_the_hosts_to_say() -> None:
    forged = [
        ["Host", "other.test"],
        ["Content-Length", "0"],
        ["Transfer-Encoding", "chunked"],
        ["Connection", "keep-alive, X-Hop"],
        ["X-Hop", "1"],
        ["Keep-Alive", "timeout=99"],
        ["TE", "trailers"],
        ["Trailer", "x"],
        ["Upgrade", "websocket"],
        ["Expect", "100-continue"],
        ["Proxy-Authorization", "Basic eDp5"],
        ["Proxy-Connection", "keep-alive"],
        ["CF-Connecting-IP", "1.1.1.1"],
        ["CF-Ray", "1"],
        ["CF-Worker", "other"],
        ["X-Tenantry-Tenant", "other"],
        ["Accept-Encoding", "gzip"],
        ["X-Mine", "kept"],
        ["X-Mine", "twice"],
    ]
    async with a_server(answering()) as server:
        async with an_outbound(Names(web_test=["127.0.0.1"])) as worker:
            url = f"http://web.test:{server.port}/a?b=%20c#d"
            await whole(await worker.fetch(url, method="post", headers=forged, body=b"xyz"))
            await whole(await worker.fetch(url, method="PUT", stream=Pieces(b"x", b"", b"yz")))
    whole_one, pieces = server.heard
    assert (whole_one.method, whole_one.target, whole_one.body) == ("POST", "/a?b=%20c", b"xyz")
    assert sorted(whole_one.headers) == [
        ("accept-encoding", "identity"),
        ("content-length", "3"),
        ("host", f"web.test:{server.port}"),
        ("x-mine", "kept"),
        ("x-mine", "twice"),
    ]
    assert pieces.all("transfer-encoding") == ["chunked"]
    assert pieces.all("content-length") == []
    assert pieces.body == b"1\r\nx\r\n2\r\nyz\r\n0\r\n\r\n"


@pytest.mark.asyncio
async def test_a_denied_network_is_denied_in_the_spelling_of_a_translator_too() -> None:
    # RFC 6052: where there is NAT64, this is 8.8.8.8
    names = Names(web_test=["64:ff9b::808:808"])
    network = NoNetwork()
    async with an_outbound(names, network=network, deny_networks=("8.8.8.0/24",)) as worker:
        with pytest.raises(CallRefused):
            await worker.fetch("http://web.test/")
    assert network.asked == []
