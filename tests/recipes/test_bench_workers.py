"""The benchmark of workers: its client counts whole responses, and its figures compare round by round."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.workers.__main__ import ALONE, ISOLATE, Rounds, compared
from tenantry_recipes.bench.workers.client import Burst, Target, burst
from tenantry_recipes.bench.workers.subjects import CODE, STREAMS, EventStream, Subjects, a_version
from tenantry_recipes.bench.workers.workerd import configured

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


@asynccontextmanager
async def a_server(*pieces: bytes) -> AsyncIterator[tuple[Target, list[bytes]]]:
    """Answer each request in these pieces, and remember them."""
    requests: list[bytes] = []

    async def serve(client: SocketStream) -> None:
        async with client:
            received = BufferedByteReceiveStream(client)
            with suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
                while True:
                    requests.append(await received.receive_until(b"\r\n\r\n", 1000))
                    for piece in pieces:
                        await client.send(piece)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)
        yield Target(port, "hello.bench.localhost", os.getpid()), requests
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "pieces", [(WHOLE,), (WHOLE[:20], WHOLE[20:50], WHOLE[50:]), (CHUNKED[:60], CHUNKED[60:])]
)
async def test_each_whole_response_is_counted_once(pieces: tuple[bytes, ...]) -> None:
    async with a_server(*pieces) as (target, requests):
        came = await burst(target, connections=2, seconds=0.05)
    assert len(came.latencies_s) == len(requests) > 0
    assert came.latencies_s == sorted(came.latencies_s)
    assert b"\r\nHost: hello.bench.localhost\r\n" in requests[0]


@pytest.mark.asyncio
async def test_an_answer_that_is_no_200_gives_no_figures() -> None:
    async with a_server(WHOLE.replace(b"200 OK", b"503 No")) as (target, _):
        with pytest.raises(BenchmarkError, match="503"):
            await burst(target, connections=1, seconds=0.05)


def test_quantiles_are_of_latencies_that_were_measured() -> None:
    came = Burst(2.0, [0.001, 0.002, 0.003, 0.1], 0.004)
    assert (came.per_s, came.processor_us) == (2.0, 1000.0)
    assert [came.quantile_ms(part) for part in (0.0, 0.5, 0.99)] == [1.0, 3.0, 100.0]


def test_what_an_isolate_adds_is_compared_within_each_round() -> None:
    def rounds(*latencies_s: float) -> Rounds:
        return Rounds([Burst(1.0, [latency_s], 0.0) for latency_s in latencies_s])

    # the second round was slow for both
    measured = {
        (ALONE, "hello 1"): rounds(0.001, 0.011),
        (ISOLATE, "hello 1"): rounds(0.002, 0.012),
    }
    assert [round(value, 6) for value in compared(measured).added_ms] == [1.0, 1.0, 1.0]


def test_every_worker_that_streams_says_how_many_events() -> None:
    assert set(STREAMS) == set(CODE) - {"hello"}


@pytest.mark.asyncio
async def test_a_model_s_stream_has_as_many_events_as_its_worker_says() -> None:
    events = [event async for event in EventStream(STREAMS["piped"])]
    assert (len(events), events[1]) == (200, b'data: {"index":1,"response":" token"}\n\n')


@pytest.mark.asyncio
async def test_no_two_versions_are_one_to_an_engine() -> None:
    first, second = a_version("hello"), a_version("hello")
    assert first.version_id != second.version_id
    assert await Subjects().read(first.files[0]) == CODE["hello"].encode()


def test_workerd_is_told_a_free_port() -> None:
    with configured("export default {}") as (config, port):
        assert f'address = "127.0.0.1:{port}"' in config.read_text()
        assert (config.parent / "worker.js").read_text() == "export default {}"
