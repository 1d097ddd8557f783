"""A replay against a server: what is sent when, what is measured, and what goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import anyio
import pytest

from support.answers import a_chunk, a_usage_chunk
from support.http_peer import Exchange, Peer, a_peer, an_unused_port
from support.replaying import a_request
from tenantry import AsyncAI
from tenantry_runtime.replay.live import LiveOptions, LiveOutcome, LiveReplay
from tenantry_runtime.replay.prompts import Prompts
from tenantry_runtime.replay.workload import ReplayRequest


def answer(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.send_event(a_chunk(role="assistant", reasoning="2 + 2"))
    for event in (a_chunk(content="4"), a_chunk("stop"), a_usage_chunk(), "[DONE]"):
        exchange.send_event(event)
    exchange.end_stream()


async def replay(url: str, requests: Iterable[ReplayRequest], *, max_open: int = 8) -> LiveOutcome:
    async with AsyncAI(base_url=url, account_id="dev", api_token="t", max_retries=0) as ai:
        options = LiveOptions(model="kimi-k2.6", max_open=max_open)
        live = LiveReplay(client=ai, prompts=Prompts(), options=options)
        with anyio.fail_after(20):
            return await live.run(requests)


def headers(peer: Peer) -> list[str]:
    return sorted(exchange.headers["x-session-affinity"] for exchange in peer.exchanges)


@pytest.mark.asyncio
async def test_requests_carry_prompt_length_and_session() -> None:
    request = a_request(3, 1, 2, num_output=7, session="s5")
    with a_peer(answer) as peer:
        outcome = await replay(peer.base_url, [request])
    (exchange,) = peer.exchanges
    assert exchange.headers["x-session-affinity"] == "s5"
    assert exchange.inputs == {
        "messages": [{"role": "user", "content": Prompts().text(request.trace)}],
        "max_tokens": 7,
        "stream": True,
    }
    (measured,) = outcome.requests
    # what the server counts is what is reported
    assert (measured.number, measured.num_prompt, measured.num_cached) == (3, 10, 3)
    assert measured.num_output == 5
    assert 0 <= measured.ttft_s <= measured.last_token_s - measured.sent_s


@pytest.mark.asyncio
async def test_the_first_token_is_timed_not_the_last() -> None:
    may_end = threading.Event()

    def slow(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event(a_chunk(content="4"))
        assert may_end.wait(20)
        for event in (a_chunk("stop"), a_usage_chunk(), "[DONE]"):
            exchange.send_event(event)
        exchange.end_stream()

    timer = threading.Timer(0.3, may_end.set)
    timer.start()
    with a_peer(slow) as peer:
        outcome = await replay(peer.base_url, [a_request(0, 1)])
    timer.join()
    (measured,) = outcome.requests
    assert measured.last_token_s - measured.first_token_s > 0.1
    # five tokens, so four of them after the first
    assert measured.tpot_s == (measured.last_token_s - measured.first_token_s) / 4


@pytest.mark.asyncio
async def test_requests_go_out_at_the_traces_times() -> None:
    with a_peer(answer) as peer:
        outcome = await replay(
            peer.base_url, [a_request(0, 1, at_s=100.0), a_request(1, 2, at_s=100.2)]
        )
    first, second = sorted(outcome.requests, key=lambda each: each.number)
    # the first goes out at once, whatever its time is
    assert second.sent_s - first.sent_s >= 0.19


@pytest.mark.asyncio
async def test_no_more_requests_are_open_than_allowed() -> None:
    lock = threading.Lock()
    num_open, most_open = 0, 0
    is_crowded = threading.Event()

    def counted(exchange: Exchange) -> None:
        nonlocal num_open, most_open
        with lock:
            num_open += 1
            most_open = max(most_open, num_open)
            if num_open > 1:
                is_crowded.set()
        # time for another to come, if it may
        is_crowded.wait(0.05)
        # before the answer ends: the client may send the next one right after it
        with lock:
            num_open -= 1
        answer(exchange)

    with a_peer(counted) as peer:
        outcome = await replay(peer.base_url, [a_request(i, i) for i in range(6)], max_open=1)
    assert len(outcome.requests) == 6
    assert most_open == 1


@pytest.mark.asyncio
async def test_a_request_that_found_no_place_counts_as_late() -> None:
    may_end = threading.Event()

    def held(exchange: Exchange) -> None:
        assert may_end.wait(20)
        answer(exchange)

    timer = threading.Timer(0.3, may_end.set)
    timer.start()
    with a_peer(held) as peer:
        outcome = await replay(peer.base_url, [a_request(i, i) for i in range(2)], max_open=1)
    timer.join()
    assert outcome.num_late == 1
    assert outcome.latest_s > 0.1


@pytest.mark.asyncio
async def test_failures_are_counted_by_kind_and_leave_the_others_alone() -> None:
    def script(exchange: Exchange) -> None:
        match exchange.headers["x-session-affinity"]:
            case "full":
                error = {"errors": [{"code": 3040, "message": "full"}], "success": False}
                exchange.send_json(error, status=429)
            case "vanishes":
                exchange.start_stream()
                exchange.send_event(a_chunk(content="4"))
                exchange.reset()
            case "fails":
                exchange.start_stream()
                exchange.send_event({"errors": [{"code": 5000, "message": "failed"}]})
                exchange.end_stream()
            case "says nothing of usage":
                exchange.start_stream()
                for event in (a_chunk("stop", content="4"), "[DONE]"):
                    exchange.send_event(event)
                exchange.end_stream()
            case _:
                answer(exchange)

    names = ["full", "ok", "vanishes", "fails", "full", "says nothing of usage", "ok"]
    with a_peer(script) as peer:
        outcome = await replay(
            peer.base_url, [a_request(i, i, session=name) for i, name in enumerate(names)]
        )
    assert headers(peer) == sorted(names)
    assert [request.number for request in outcome.requests] in ([1, 6], [6, 1])
    assert dict(outcome.errors) == {
        "CapacityExceeded": 2,
        "NoUsage": 1,
        "ServerError": 1,
        "StreamTruncated": 1,
    }


@pytest.mark.asyncio
async def test_a_server_that_is_not_there_is_an_error_of_each_request() -> None:
    url = f"http://127.0.0.1:{an_unused_port()}/client/v4"
    outcome = await replay(url, [a_request(i, i) for i in range(3)])
    assert dict(outcome.errors) == {"ConnectionFailed": 3}


@pytest.mark.asyncio
async def test_canceling_hangs_up_on_every_open_request() -> None:
    connected = threading.Semaphore(0)

    def hold(exchange: Exchange) -> None:
        exchange.start_stream()
        connected.release()
        exchange.wait_for_hangup()

    async def wait_for_both() -> None:
        for _ in range(2):
            await anyio.to_thread.run_sync(lambda: connected.acquire(timeout=20))

    with a_peer(hold) as peer:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replay, peer.base_url, [a_request(i, i) for i in range(2)])
            await wait_for_both()
            tasks.cancel_scope.cancel()
        # both scripts have seen it
        peer.wait_for_scripts(2)


def test_no_place_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="max_open is 0"):
        LiveOptions(model="kimi-k2.6", max_open=0)
