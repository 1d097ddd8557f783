"""Streams and calls over a real connection: left early, cancelled, and with peers that vanish."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest

import tenantry
from support.answers import a_chunk, a_completion, a_usage_chunk
from support.callers import KINDS, AsynchronousCaller, BlockingCaller, Caller, Kind
from support.http_peer import PATIENCE_S, Exchange, a_peer, an_unused_port
from tenantry import AI, AsyncAI, TenantryError

PROMPT = {"prompt": "What is 17 + 25?"}


def an_ai(base_url: str) -> AI:
    return AI(base_url=base_url, account_id="dev", api_token="token-of-dev")


def an_async_ai(base_url: str) -> AsyncAI:
    return AsyncAI(base_url=base_url, account_id="dev", api_token="token-of-dev")


def a_real_caller(kind: Kind, base_url: str) -> Caller:
    options = {"base_url": base_url, "account_id": "dev", "api_token": "token-of-dev"}
    return BlockingCaller(**options) if kind == "blocking" else AsynchronousCaller(**options)


def answer(exchange: Exchange) -> None:
    exchange.send_result(a_completion("42"))


def stream_all(exchange: Exchange) -> None:
    exchange.start_stream()
    for event in (a_chunk(content="4"), a_chunk(content="2"), a_chunk("stop"), a_usage_chunk()):
        exchange.send_event(event)
    exchange.send_event("[DONE]")
    exchange.end_stream()


def stream_until_hangup(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.send_event(a_chunk(content="4"))
    exchange.wait_for_hangup()


def test_a_call_and_a_stream_over_the_wire() -> None:
    with a_peer(answer) as peer, an_ai(peer.base_url) as ai:
        assert ai.run("kimi-k2.6", PROMPT, session="s").text == "42"
    (exchange,) = peer.exchanges
    assert (exchange.method, exchange.path) == ("POST", "/client/v4/accounts/dev/ai/run/kimi-k2.6")
    assert exchange.headers["authorization"] == "Bearer token-of-dev"
    assert exchange.headers["x-session-affinity"] == "s"
    assert exchange.inputs == {**PROMPT, "stream": False}
    with a_peer(stream_all) as peer, an_ai(peer.base_url) as ai:
        stream = ai.run("kimi-k2.6", PROMPT, stream=True)
        assert [chunk.text for chunk in stream] == ["4", "2", "", ""]


@pytest.mark.asyncio
async def test_an_asynchronous_stream_over_the_wire() -> None:
    with a_peer(stream_all) as peer:
        async with an_async_ai(peer.base_url) as ai:
            stream = await ai.run("kimi-k2.6", PROMPT, stream=True)
            assert [chunk.text async for chunk in stream] == ["4", "2", "", ""]


def test_chunks_are_out_before_the_answer_is_whole() -> None:
    seen_first = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event(a_chunk(content="4"))
        assert seen_first.wait(PATIENCE_S)
        exchange.send_event(a_chunk(content="2"))
        exchange.send_event("[DONE]")
        exchange.end_stream()

    with a_peer(script) as peer, an_ai(peer.base_url) as ai:
        stream = ai.run("kimi-k2.6", PROMPT, stream=True)
        assert next(stream).text == "4"
        seen_first.set()
        assert [chunk.text for chunk in stream] == ["2"]


def test_leaving_the_block_ends_the_request() -> None:
    with a_peer(stream_until_hangup) as peer, an_ai(peer.base_url) as ai:
        with ai.run("kimi-k2.6", PROMPT, stream=True) as stream:
            for chunk in stream:
                assert chunk.text == "4"
                break
        # the client is still open, so only the left block can have hung up
        peer.wait_for_scripts(1)


def test_an_exception_in_the_block_ends_the_request() -> None:
    with a_peer(stream_until_hangup) as peer, an_ai(peer.base_url) as ai:
        with pytest.raises(ZeroDivisionError), ai.run("m", PROMPT, stream=True) as stream:
            for _ in stream:
                raise ZeroDivisionError
        peer.wait_for_scripts(1)


def done_until_hangup(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.send_event("[DONE]")
    exchange.wait_for_hangup()


def test_done_ends_the_request_without_a_block_too() -> None:
    with a_peer(done_until_hangup) as peer, an_ai(peer.base_url) as ai:
        stream = ai.run("kimi-k2.6", PROMPT, stream=True)
        assert list(stream) == []
        peer.wait_for_scripts(1)


@pytest.mark.asyncio
async def test_done_ends_the_asynchronous_request_without_a_block_too() -> None:
    with a_peer(done_until_hangup) as peer:
        async with an_async_ai(peer.base_url) as ai:
            stream = await ai.run("kimi-k2.6", PROMPT, stream=True)
            assert [chunk async for chunk in stream] == []
            await anyio.to_thread.run_sync(peer.wait_for_scripts, 1)


def test_closing_ends_the_request_also_before_the_first_chunk() -> None:
    with a_peer(stream_until_hangup) as peer, an_ai(peer.base_url) as ai:
        ai.run("kimi-k2.6", PROMPT, stream=True).close()
        peer.wait_for_scripts(1)


@pytest.mark.asyncio
async def test_leaving_the_asynchronous_block_ends_the_request() -> None:
    with a_peer(stream_until_hangup) as peer:
        async with an_async_ai(peer.base_url) as ai:
            async with await ai.run("kimi-k2.6", PROMPT, stream=True) as stream:
                async for chunk in stream:
                    assert chunk.text == "4"
                    break
            await anyio.to_thread.run_sync(peer.wait_for_scripts, 1)


@pytest.mark.asyncio
async def test_cancelling_a_stream_ends_the_request() -> None:
    with a_peer(stream_until_hangup) as peer:
        async with an_async_ai(peer.base_url) as ai:
            with anyio.CancelScope() as scope:
                async with await ai.run("kimi-k2.6", PROMPT, stream=True) as stream:
                    async for _ in stream:
                        scope.cancel()
            assert scope.cancelled_caught
            await anyio.to_thread.run_sync(peer.wait_for_scripts, 1)


@pytest.mark.asyncio
async def test_cancelling_a_call_ends_the_request() -> None:
    has_request = threading.Event()

    def script(exchange: Exchange) -> None:
        has_request.set()
        exchange.wait_for_hangup()

    with a_peer(script) as peer:
        async with an_async_ai(peer.base_url) as ai:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ai.run, "kimi-k2.6", PROMPT)
                assert await anyio.to_thread.run_sync(has_request.wait, PATIENCE_S)
                tasks.cancel_scope.cancel()
            await anyio.to_thread.run_sync(peer.wait_for_scripts, 1)


def end_cleanly(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.send_event(a_chunk(content="4"))
    exchange.end_stream()


def close_midway(exchange: Exchange) -> None:
    exchange.start_stream()
    exchange.send_event(a_chunk(content="4"))


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", [end_cleanly, close_midway])
async def test_a_peer_that_vanishes_midway_is_a_truncated_stream_and_no_retry(
    kind: Kind, script: Callable[[Exchange], None]
) -> None:
    with a_peer(script) as peer:
        caller = a_real_caller(kind, peer.base_url)
        with pytest.raises(tenantry.StreamTruncated):
            await caller.stream("kimi-k2.6", PROMPT)
    assert len(peer.exchanges) == 1
    assert caller.waits_s == []


def a_reset_after(has_chunk: threading.Event) -> Callable[[Exchange], None]:
    def script(exchange: Exchange) -> None:
        close_midway(exchange)
        assert has_chunk.wait(PATIENCE_S)
        exchange.reset()

    return script


def test_a_reset_connection_is_a_truncated_stream() -> None:
    has_chunk = threading.Event()
    with a_peer(a_reset_after(has_chunk)) as peer, an_ai(peer.base_url) as ai:
        stream = ai.run("kimi-k2.6", PROMPT, stream=True)
        assert next(stream).text == "4"
        has_chunk.set()
        with pytest.raises(tenantry.StreamTruncated, match="broke before the answer was whole"):
            next(stream)


@pytest.mark.asyncio
async def test_a_reset_connection_is_a_truncated_asynchronous_stream() -> None:
    has_chunk = threading.Event()
    with a_peer(a_reset_after(has_chunk)) as peer:
        async with an_async_ai(peer.base_url) as ai:
            stream = await ai.run("kimi-k2.6", PROMPT, stream=True)
            assert (await anext(stream)).text == "4"
            has_chunk.set()
            with pytest.raises(tenantry.StreamTruncated, match="broke before the answer was whole"):
                await anext(stream)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_peer_that_vanishes_before_it_answers_is_asked_again(kind: Kind) -> None:
    def script(exchange: Exchange) -> None:
        if len(peer.exchanges) < 3:
            exchange.reset()
        else:
            answer(exchange)

    with a_peer(script) as peer:
        caller = a_real_caller(kind, peer.base_url)
        assert (await caller.run("kimi-k2.6", PROMPT)).text == "42"
    assert len(caller.waits_s) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_listening_is_a_failed_connection(kind: Kind) -> None:
    caller = a_real_caller(kind, f"http://127.0.0.1:{an_unused_port()}/client/v4")
    with pytest.raises(tenantry.ConnectionFailed, match="is the server running"):
        await caller.run("kimi-k2.6", PROMPT)
    assert len(caller.waits_s) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_silence_is_a_timeout_and_hangs_up(kind: Kind) -> None:
    with a_peer(lambda exchange: exchange.wait_for_hangup()) as peer:
        caller = a_real_caller(kind, peer.base_url)
        with pytest.raises(tenantry.RequestTimeout, match="silent"):
            await caller.run("kimi-k2.6", PROMPT, timeout=0.25)
        await anyio.to_thread.run_sync(peer.wait_for_scripts, 1)
    assert len(peer.exchanges) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_silence_in_a_stream_is_a_timeout_and_hangs_up(kind: Kind) -> None:
    with a_peer(stream_until_hangup) as peer:
        caller = a_real_caller(kind, peer.base_url)
        failure: type[TenantryError] = tenantry.RequestTimeout
        with pytest.raises(failure, match="silent"):
            await caller.stream("kimi-k2.6", PROMPT, timeout=0.25)
        await anyio.to_thread.run_sync(peer.wait_for_scripts, 1)


def test_a_proxy_in_the_environment_does_not_come_between_loopback_and_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nobody = f"http://127.0.0.1:{an_unused_port()}"
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, nobody)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with a_peer(answer) as peer, an_ai(peer.base_url) as ai:
        assert ai.run("kimi-k2.6", PROMPT).text == "42"
