"""Invocations that an isolate has certainly not begun come back, with their bodies, to begin elsewhere."""

from __future__ import annotations

import anyio
import pytest

from support.byte_streams import Pieces
from support.guests import Heard, a_request, an_invocation
from support.hostile_isolates import Peer, a_peer, start_fetch
from tenantry_runtime.workers.frames import Busy, Failed, Finished, Resume, Returned
from tenantry_runtime.workers.isolate import Isolate, IsolateEnded, NeverBegan


async def refused(isolate: Isolate, body: Pieces | None = None) -> None:
    with pytest.raises(NeverBegan):
        async with isolate.fetch(a_request("/", body), an_invocation(), Heard()):
            raise AssertionError("it answered")


@pytest.mark.asyncio
async def test_what_a_busy_isolate_gives_back_is_over_there_and_the_rest_goes_on() -> None:
    heard = [Heard() for _ in range(3)]
    body = Pieces(b"body")
    async with a_peer() as (isolate, peer), anyio.create_task_group() as group:
        holder = start_fetch(group, isolate, heard[0])
        await peer.hear()
        given_back = start_fetch(group, isolate, heard[1], a_request("/", body))
        await peer.hear()
        unread = start_fetch(group, isolate, heard[2])
        await peer.hear()
        await peer.say(Busy(1, "entry.py", 12, 2, [2]))
        await given_back.is_over.wait()
        await unread.is_over.wait()
        assert isinstance(await peer.hear(), Resume)
        assert isolate.held_up is not None
        held_up = isolate.held_up
        assert (held_up.attendant, held_up.path, held_up.line) == (heard[0], "entry.py", 12)
        assert isinstance(given_back.error, NeverBegan)
        assert isinstance(unread.error, NeverBegan)
        assert (body.num_read, body.is_closed) == (0, False)
        assert not holder.is_over.is_set()
        await peer.say(Failed(1, "ValueError", ""), Finished(1))
        await holder.is_over.wait()
        assert isolate.held_up.num_signs < isolate.statistics().num_signs
    assert [each.num_finished for each in heard] == [1, 1, 1]


@pytest.mark.asyncio
async def test_a_request_to_an_isolate_that_has_just_ended_comes_back_with_its_body() -> None:
    body = Pieces(b"body")
    async with a_peer() as (isolate, peer):
        peer.connection.close()
        await refused(isolate, body)
        await isolate.ended.wait()
        await refused(isolate, body)
    assert (body.num_read, body.is_closed) == (0, False)


@pytest.mark.asyncio
async def test_a_request_that_was_written_and_not_read_comes_back() -> None:
    async with a_peer() as (isolate, peer), anyio.create_task_group() as group:
        first = start_fetch(group, isolate)
        await peer.hear()
        second = start_fetch(group, isolate)
        await readable(peer)
        # what it has not read is lost with its end of the stream
        peer.connection.close()
        await first.is_over.wait()
        await second.is_over.wait()
    assert type(first.error) is IsolateEnded
    assert type(second.error) is NeverBegan


@pytest.mark.asyncio
async def test_a_request_that_was_read_does_not_come_back() -> None:
    async with a_peer() as (isolate, peer), anyio.create_task_group() as group:
        first = start_fetch(group, isolate)
        await peer.hear()
        peer.connection.close()
        await first.is_over.wait()
    assert type(first.error) is IsolateEnded


@pytest.mark.asyncio
async def test_a_call_of_a_method_comes_back_too() -> None:
    async with a_peer() as (isolate, peer), anyio.create_task_group() as group:
        group.start_soon(peer.hear)
        group.start_soon(peer.say, Busy(0, "", 0, 0, []))
        with pytest.raises(NeverBegan):
            await isolate.rpc("method", [], {}, an_invocation(), Heard())
        await peer.hear()

        async def answer() -> None:
            await peer.hear()
            await peer.say(Returned(2, "answer"), Finished(2))

        group.start_soon(answer)
        assert await isolate.rpc("method", [], {}, an_invocation(), Heard()) == "answer"


async def readable(peer: Peer) -> None:
    await anyio.wait_readable(peer.connection)
