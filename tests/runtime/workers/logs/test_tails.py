"""Tails through a real WebSocket, and what happens to listeners that are slow, many or gone."""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from support.worker_routes import ACCOUNT, a_record, a_version
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.worker_routes.tails import EdgeTails
from tenantry_runtime.errors import CapacityExceeded, ConfigurationError
from tenantry_runtime.workers.interface import LogLine
from tenantry_runtime.workers.logs import (
    TailBroker,
    TailFilters,
    listener,
    open_tail_listener,
)
from tenantry_runtime.workers.logs.broker import MAX_TAILS_EACH

pytestmark = pytest.mark.asyncio


class Place:
    """A server whose tails are those of one broker."""

    def __init__(self, broker: TailBroker, tails: EdgeTails, port: int) -> None:
        self.broker = broker
        self.tails = tails
        self.port = port
        self.base_url = f"ws://127.0.0.1:{port}"

    async def open(self, *filters: dict[str, Any]) -> str:
        address = await self.tails.open(
            ACCOUNT, "hello", filters, base_url="http://127.0.0.1:8787", client_ip="127.0.0.1"
        )
        return address.url

    @asynccontextmanager
    async def listening(self, *filters: dict[str, Any]) -> AsyncIterator[ClientConnection]:
        async with connect(
            await self.open(*filters), subprotocols=[Subprotocol("trace-v1")], proxy=None
        ) as socket:
            await socket.send('{"debug":false}')
            yield socket


@asynccontextmanager
async def a_place() -> AsyncIterator[Place]:
    broker = TailBroker()
    async with open_tail_listener(broker, "127.0.0.1") as port:
        yield Place(broker, EdgeTails(broker, port), port)


async def message(socket: ClientConnection) -> dict[str, Any]:
    with anyio.fail_after(10):
        read: dict[str, Any] = json.loads(await socket.recv())
    return read


async def test_a_listener_hears_of_invocations_as_they_end() -> None:
    async with a_place() as place:
        async with place.listening() as socket:
            assert socket.subprotocol == "trace-v1"
            place.broker.publish(a_record(started_ms=7))
            assert (await message(socket))["eventTimestamp"] == 7


async def test_a_listener_hears_what_its_filters_ask_for_of_its_worker_alone() -> None:
    async with a_place() as place:
        async with place.listening({"query": "needle"}) as socket:
            place.broker.publish(a_record(started_ms=1))
            place.broker.publish(
                a_record(
                    version=a_version("other"),
                    logs=[LogLine(level="log", text="needle", time_ms=0)],
                )
            )
            place.broker.publish(
                a_record(
                    version=a_version(tenant=TenantId("evil")),
                    logs=[LogLine(level="log", text="needle", time_ms=0)],
                )
            )
            place.broker.publish(
                a_record(started_ms=4, logs=[LogLine(level="log", text="a needle", time_ms=0)])
            )
            assert (await message(socket))["eventTimestamp"] == 4


async def test_a_tail_ends_with_its_listener() -> None:
    async with a_place() as place:
        async with place.listening():
            assert place.broker.statistics().num_tails == 1
        with anyio.fail_after(10):
            while place.broker.statistics().num_tails:
                await anyio.lowlevel.checkpoint()


async def test_a_tail_that_is_ended_says_goodbye() -> None:
    async with a_place() as place:
        async with place.listening() as socket:
            (tail,) = place.broker.of_worker(ACCOUNT, "hello")
            assert await place.tails.close(ACCOUNT, "hello", tail.id)
            assert not await place.tails.close(ACCOUNT, "hello", tail.id)
            with pytest.raises(ConnectionClosed) as closed, anyio.fail_after(10):
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001


@pytest.mark.parametrize("path", ["/tails/guessed", "/tails/", "/elsewhere"])
async def test_nobody_listens_without_the_address(path: str) -> None:
    async with a_place() as place:
        with pytest.raises(InvalidHandshake):
            async with connect(f"{place.base_url}{path}", proxy=None):
                pass


async def test_an_address_serves_one_listener() -> None:
    async with a_place() as place:
        url = await place.open()
        async with connect(url, proxy=None):
            with pytest.raises(InvalidHandshake):
                async with connect(url, proxy=None):
                    pass


async def test_another_account_does_not_end_a_tail() -> None:
    async with a_place() as place:
        await place.open()
        (tail,) = place.broker.of_worker(ACCOUNT, "hello")
        assert not await place.tails.close(TenantId("evil"), "hello", tail.id)
        assert place.broker.find(tail.id) is tail


async def test_a_slow_listener_loses_what_is_too_much_and_is_told_how_much() -> None:
    broker = TailBroker()
    tail = broker.open(ACCOUNT, "hello", TailFilters())
    tail.is_connected = True
    for at in range(300):
        broker.publish(a_record(started_ms=at))
    heard = [json.loads(await tail.next() or b"") for _ in range(257)]
    assert [each["eventTimestamp"] for each in heard[:-1]] == list(range(256))
    # as wrangler knows it
    assert heard[-1]["event"]["type"] == "overload"
    assert heard[-1]["event"]["message"].startswith("44 messages")


async def test_what_waits_for_a_listener_is_bounded_in_bytes() -> None:
    broker = TailBroker()
    tail = broker.open(ACCOUNT, "hello", TailFilters())
    tail.is_connected = True
    for _ in range(100):
        broker.publish(a_record(logs=[LogLine(level="log", text="x" * 200_000, time_ms=0)]))
    assert tail.num_waiting * 200_000 <= 4 << 20
    assert tail.num_waiting + tail.num_dropped == 100


async def test_an_account_that_listens_much_leaves_places_to_others() -> None:
    now_s = 0.0
    broker = TailBroker(clock=lambda: now_s)
    opened = [
        broker.open(ACCOUNT, f"w{number // 10}", TailFilters()) for number in range(MAX_TAILS_EACH)
    ]
    with pytest.raises(CapacityExceeded):
        broker.open(ACCOUNT, "another", TailFilters())
    broker.open(TenantId("other"), "w0", TailFilters())
    for tail in opened[1:]:
        tail.is_connected = True
    now_s = 61.0
    # in the place of the one that nobody has used
    broker.open(ACCOUNT, "another", TailFilters())
    assert broker.find(opened[0].id) is None
    assert broker.statistics().num_tails == MAX_TAILS_EACH + 1


async def test_ten_may_listen_to_a_worker_and_an_unused_place_is_given_on() -> None:
    now_s = 0.0
    broker = TailBroker(clock=lambda: now_s)
    first, *_ = [broker.open(ACCOUNT, "hello", TailFilters()) for _ in range(10)]
    with pytest.raises(CapacityExceeded):
        broker.open(ACCOUNT, "hello", TailFilters())
    broker.open(ACCOUNT, "other", TailFilters())
    now_s = 61.0
    broker.open(ACCOUNT, "hello", TailFilters())
    assert broker.find(first.id) is None


async def test_a_tail_expires() -> None:
    now_s = 0.0
    broker = TailBroker(clock=lambda: now_s)
    tail = broker.open(ACCOUNT, "hello", TailFilters())
    now_s = tail.expires_s + 1
    assert broker.find(tail.id) is None
    assert await tail.next() is None


HANDSHAKE = (
    b"GET %s HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"sec-websocket-protocol: trace-v1\r\n\r\n"
)


async def until(client: SocketStream, mark: bytes) -> bytes:
    read = b""
    with anyio.fail_after(10):
        while mark not in read:
            read += await client.receive()
    return read


async def test_frames_without_a_mask_are_read_and_pings_answered() -> None:
    async with a_place() as place:
        url = await place.open()
        path = url.removeprefix(place.base_url).encode()
        async with await anyio.connect_tcp("127.0.0.1", place.port) as client:
            # as wrangler does: its first frame comes without a mask, right behind the handshake
            await client.send(HANDSHAKE % path + b"\x81\x0f" + b'{"debug":false}')
            head = await until(client, b"\r\n\r\n")
            # of RFC 6455, section 1.3
            assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
            assert b"sec-websocket-protocol: trace-v1\r\n" in head
            mask = b"\x01\x02\x03\x04"
            await client.send(b"\x89\x82" + mask + bytes([ord("h") ^ 1, ord("i") ^ 2]))
            assert await until(client, b"hi") == b"\x8a\x02hi"
            place.broker.publish(a_record(started_ms=7))
            assert b'"eventTimestamp":7' in await until(client, b"}")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x88\x00", 1000),
        (b"\x83\x00", 1002),
        (b"\xf1\x00", 1002),
        (b"\x89\x7e\x00\x80" + bytes(128), 1002),
        (b"\x81\x7e\x10\x01" + bytes(4097), 1009),
        (b"\x81\x7f" + b"\x7f" * 8, 1009),
    ],
)
async def test_what_is_no_frame_of_a_listener_ends_it(frame: bytes, code: int) -> None:
    async with a_place() as place:
        path = (await place.open()).removeprefix(place.base_url).encode()
        async with await anyio.connect_tcp("127.0.0.1", place.port) as client:
            await client.send(HANDSHAKE % path)
            await until(client, b"\r\n\r\n")
            await client.send(frame)
            assert (await until(client, b"\x88"))[:4] == b"\x88\x02" + code.to_bytes(2)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /tails/x HTTP/1.1\r\nhost: x\r\n\r\n", b"400"),
        (HANDSHAKE.replace(b": 13", b": 8") % b"/tails/x", b"426"),
        (HANDSHAKE % b"/tails/x", b"404"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000, b"400"),
    ],
)
async def test_what_asks_for_no_tail_is_refused(request_: bytes, status: bytes) -> None:
    async with a_place() as place, await anyio.connect_tcp("127.0.0.1", place.port) as client:
        await client.send(request_)
        assert (await until(client, b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)


async def test_a_port_that_is_taken_is_an_error_of_the_configuration() -> None:
    async with a_place() as place:
        with pytest.raises(ConfigurationError, match="cannot listen for tails"):
            async with open_tail_listener(TailBroker(), "127.0.0.1", place.port):
                pass


async def test_a_proxy_may_lead_to_the_listener() -> None:
    tails = EdgeTails(TailBroker(), 7, "wss://tails.example/")
    made = await tails.open(ACCOUNT, "hello", [], base_url="https://api.example", client_ip="")
    assert made.url == f"wss://tails.example/tails/{made.id}"


async def test_a_connection_over_the_limit_waits_and_is_served_when_there_is_a_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "MAX_CONNECTIONS", 2)
    async with a_place() as place:
        url = await place.open()
        idle = [await anyio.connect_tcp("127.0.0.1", place.port) for _ in range(2)]
        async with anyio.create_task_group() as tasks:
            is_open = anyio.Event()

            async def tail() -> None:
                async with connect(url, subprotocols=[Subprotocol("trace-v1")], proxy=None):
                    is_open.set()

            tasks.start_soon(tail)
            await anyio.wait_all_tasks_blocked()
            assert not is_open.is_set()
            for stream in idle:
                await stream.aclose()
            with anyio.fail_after(10):
                await is_open.wait()


async def test_a_connection_that_cannot_be_accepted_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "ACCEPT_PAUSE_S", 0)
    has_asked_again = anyio.Event()

    class Full:
        num_asked = 0

        async def accept(self) -> SocketStream:
            self.num_asked += 1
            if self.num_asked < 4:
                raise OSError(errno.EMFILE, "Too many open files")
            has_asked_again.set()
            await anyio.sleep_forever()
            raise AssertionError

    async with anyio.create_task_group() as tasks:
        # one place: what failed has given it back
        places = anyio.Semaphore(1)
        tasks.start_soon(listener.accept_all, Full(), TailBroker(), places, tasks)
        with anyio.fail_after(10):
            await has_asked_again.wait()
        tasks.cancel_scope.cancel()
    assert "Too many open files" in caplog.text
