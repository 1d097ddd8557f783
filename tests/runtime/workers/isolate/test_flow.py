"""What one isolate can make the runtime hold, and how long it can keep others waiting."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc

import anyio
import pytest

from support.byte_streams import Pieces
from support.guests import Heard, a_request, a_version, an_invocation
from support.hostile_isolates import FETCH, Peer, a_peer, framed, invaded, start_fetch
from tenantry_runtime.workers.frames import (
    INITIAL_CREDIT,
    MAX_DATA_BYTES,
    Break,
    Credit,
    Data,
    End,
    Failed,
    Fetch,
    File,
    Finished,
    FromIsolate,
    Load,
    Loaded,
    Log,
    Respond,
    Rpc,
)
from tenantry_runtime.workers.isolate import Ending, EndingKind, InvocationFailed, IsolateLimits
from tenantry_runtime.workers.isolate.channel import (
    MAX_FRAMES_PER_TURN,
    WRITE_HIGH_BYTES,
    Channel,
)

MIB = 1 << 20


@pytest.mark.asyncio
async def test_credit_comes_only_as_a_body_is_read() -> None:
    pieces = [Data(1, bytes([n]) * MAX_DATA_BYTES) for n in range(4)]
    async with invaded() as at:
        await at.peer.say(Respond(FETCH, 200, [], None, 1), *pieces)
        response = await at.fetching.answered()
        await at.peer.say(Log(FETCH, "log", "sent"))
        await at.fetching.heard.line("sent")
        assert not isinstance(response.body, bytes)
        got = b""
        while len(got) < INITIAL_CREDIT:
            got += await anext(aiter(response.body))
        assert got == b"".join(piece.data for piece in pieces)
        num_granted = 0
        while num_granted < INITIAL_CREDIT:
            credit = await at.peer.hear()
            assert isinstance(credit, Credit)
            num_granted += credit.num_bytes
        await at.peer.say(Data(1, bytes(MAX_DATA_BYTES)), End(1))
        assert len(await anext(aiter(response.body))) == MAX_DATA_BYTES
        with pytest.raises(StopAsyncIteration):
            await anext(aiter(response.body))


@pytest.mark.asyncio
async def test_a_refused_body_is_read_no_further_and_held_no_longer() -> None:
    async with invaded() as at:
        await at.peer.say(Respond(FETCH, 200, [], None, 1), Data(1, bytes(MAX_DATA_BYTES)))
        await at.fetching.answered()
        at.fetching.release.set()
        assert await at.peer.hear() == Break(1)
        await at.peer.say(Data(1, bytes(MAX_DATA_BYTES)), Log(FETCH, "log", "sent"))
        await at.fetching.heard.line("sent")
        assert at.isolate.ending is None
        assert at.isolate.statistics().num_streams == 2


@pytest.mark.asyncio
async def test_a_stream_sends_no_more_than_it_was_given_credit_for() -> None:
    body = Pieces(*[bytes(1000)] * 100)
    async with a_peer() as (isolate, peer), anyio.create_task_group() as group:
        start_fetch(group, isolate, request=a_request("/", body))
        fetch = await peer.hear()
        assert isinstance(fetch, Fetch)
        assert fetch.body_stream is not None
        assert body.num_read == 0
        await peer.say(Credit(fetch.body_stream, 2500))
        frames = await peer.hear_all(3)
        assert [len(frame.data) for frame in frames if isinstance(frame, Data)] == [1000, 1000, 500]
        assert body.num_read == 3
        group.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_an_isolate_that_does_not_read_is_sent_a_bounded_part() -> None:
    num_fetches = 64
    async with a_peer() as (isolate, _), anyio.create_task_group() as group:
        for _ in range(num_fetches):
            start_fetch(group, isolate, request=a_request("/", bytes(MAX_DATA_BYTES)))
        await anyio.wait_all_tasks_blocked()
        num_begun = isolate.statistics().num_invocations
        # what the system's buffer takes, and what the transport holds
        assert num_begun * MAX_DATA_BYTES < WRITE_HIGH_BYTES + MIB
        assert num_begun < num_fetches
        group.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_an_isolate_that_does_not_read_is_not_read_either() -> None:
    heard = Heard()
    async with a_peer(heard) as (isolate, peer), anyio.create_task_group() as group:
        for _ in range(64):
            start_fetch(group, isolate, request=a_request("/", bytes(MAX_DATA_BYTES)))
        await anyio.wait_all_tasks_blocked()
        await peer.say(Log(0, "log", "hello"))
        await anyio.wait_all_tasks_blocked()
        num_frames = isolate.statistics().num_frames
        group.start_soon(read_on, peer)
        await heard.line("hello")
        assert num_frames == 0
        group.cancel_scope.cancel()


async def read_on(peer: Peer) -> None:
    while True:
        await peer.hear()


def a_channel(received: list[FromIsolate], endings: list[Ending]) -> Channel:
    """Return a channel that is given its bytes by hand."""
    with socket.socket() as unused:
        return Channel(asyncio.get_running_loop(), unused, received.append, endings.append)


@pytest.mark.asyncio
async def test_a_flood_of_frames_gives_others_their_turns() -> None:
    received: list[FromIsolate] = []
    endings: list[Ending] = []
    channel = a_channel(received, endings)
    channel.data_received(framed(Log(0, "log", "x")) * (3 * MAX_FRAMES_PER_TURN))
    assert len(received) == MAX_FRAMES_PER_TURN
    await asyncio.sleep(0)
    assert len(received) == 2 * MAX_FRAMES_PER_TURN
    await asyncio.sleep(0)
    assert len(received) == 3 * MAX_FRAMES_PER_TURN
    assert endings == []


@pytest.mark.asyncio
async def test_a_frame_that_comes_byte_by_byte_is_one_frame() -> None:
    received: list[FromIsolate] = []
    channel = a_channel(received, [])
    for byte in framed(Log(0, "log", "x"), Log(0, "warn", "y")):
        channel.data_received(bytes([byte]))
    assert received == [Log(0, "log", "x"), Log(0, "warn", "y")]


@pytest.mark.asyncio
async def test_lines_beyond_the_rate_are_counted_and_a_flood_ends_the_isolate() -> None:
    heard = Heard()
    limits = IsolateLimits(num_logs=10, logs_per_s=0, max_dropped_logs=1000)
    async with a_peer(heard, limits) as (isolate, peer):
        await peer.write(framed(Log(0, "log", "x")) * 500)
        await peer.write(framed(Log(0, "log", "x")) * 600)
        await isolate.ended.wait()
        assert isolate.ending is not None
        assert "more than it may log" in isolate.ending.message
    assert len(heard.lines) == 10


@pytest.mark.asyncio
async def test_an_isolate_that_says_all_it_can_costs_a_few_mebibytes() -> None:
    long_line = framed(Log(0, "log", "x" * (16 << 10)))
    body = framed(*[Data(1, bytes(MAX_DATA_BYTES))] * (INITIAL_CREDIT // MAX_DATA_BYTES))
    tracemalloc.start()
    try:
        limits = IsolateLimits(num_logs=16, logs_per_s=0, max_dropped_logs=4000)
        async with a_peer(Heard(), limits) as (isolate, peer), anyio.create_task_group() as group:
            start_fetch(group, isolate)
            await peer.say(Respond(FETCH, 200, [], None, 1))
            await peer.write(body)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(16):
                await peer.write(long_line * 256)
                if isolate.ending is not None:
                    break
            await isolate.ended.wait()
            _, peak = tracemalloc.get_traced_memory()
            group.cancel_scope.cancel()
    finally:
        tracemalloc.stop()
    # the test's own 4 MiB at a time are among them
    assert peak - before < 12 * MIB


@pytest.mark.asyncio
async def test_an_isolate_that_is_gone_fails_what_is_open() -> None:
    heard = Heard()
    async with a_peer() as (isolate, peer):
        async with anyio.create_task_group() as group:
            fetching = start_fetch(group, isolate, heard)
            await peer.hear()
            peer.connection.close()
            await isolate.ended.wait()
        assert isolate.ending == Ending(EndingKind.CLOSED, "the isolate closed its stream")
        assert fetching.error is not None
    assert heard.num_finished == 1


@pytest.mark.asyncio
async def test_last_words_are_heard_though_it_can_be_written_to_no_more() -> None:
    heard = Heard()
    async with a_peer(heard) as (isolate, peer), anyio.create_task_group() as group:
        start_fetch(group, isolate)
        # the fetch is written, and fails, before the loop has looked for what there is to read
        peer.connection.send(framed(Log(0, "log", "last words")))
        peer.connection.close()
        await isolate.ended.wait()
    assert heard.texts == ["last words"]


@pytest.mark.asyncio
async def test_a_load_that_is_given_up_is_told_by_nobody() -> None:
    async with a_peer() as (isolate, peer):
        with anyio.move_on_after(0) as scope:
            await isolate.load(a_version(), [("entry.py", b"")], {})
        assert scope.cancelled_caught
        assert [type(frame) for frame in await peer.hear_all(2)] == [File, Load]
        await peer.say(Loaded({}, 1.0), Log(0, "log", "loaded"))
        with pytest.raises(InvocationFailed):
            await asyncio.gather(
                isolate.rpc("method", [], {}, an_invocation(), Heard()), fail_first(peer)
            )
        assert isolate.ending is None


async def fail_first(peer: Peer) -> None:
    assert isinstance(await peer.hear(), Rpc)
    await peer.say(Failed(1, "E", ""), Finished(1))
