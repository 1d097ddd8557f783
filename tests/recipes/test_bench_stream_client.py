from __future__ import annotations

import json
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from support.http_peer import PATIENCE_S, Exchange, a_peer
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.load import closed_loop
from tenantry_recipes.bench.stream_client import ChunkedBody, EventLines, StreamRequest, ask

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def a_request(port: int, body: bytes = b"{}") -> StreamRequest:
    return StreamRequest(host="127.0.0.1", port=port, path="/v1/completions", body=body)


def completions(exchange: Exchange) -> None:
    """Answer as llama.cpp and vLLM do."""
    exchange.start_stream()
    for text in ("Hel", "lo"):
        exchange.send_event({"choices": [{"index": 0, "text": text}], "usage": None})
    exchange.send_event({"choices": [], "usage": USAGE})
    exchange.send_event("[DONE]")
    exchange.end_stream()


def chat(exchange: Exchange) -> None:
    """Answer as this runtime does."""
    exchange.start_stream()
    exchange.send_event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    exchange.send_event({"choices": [{"delta": {"reasoning": "Hel", "reasoning_content": "Hel"}}]})
    exchange.send_event({"choices": [{"delta": {"content": "lo"}}]})
    exchange.send_event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    exchange.send_event({"choices": [], "usage": USAGE})
    exchange.send_event("[DONE]")
    exchange.end_stream()


@given(
    contents=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_a_chunked_body_is_read_whole_wherever_it_is_cut(
    contents: list[bytes], cuts: list[int]
) -> None:
    sent = b"".join(b"%x\r\n%s\r\n" % (len(content), content) for content in contents)
    sent += b"0\r\n\r\n"
    edges = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    body = ChunkedBody()
    received = b"".join(body.feed(sent[start:end]) for start, end in pairwise(edges))

    assert received == b"".join(contents)
    assert body.is_complete


def test_chunk_extensions_are_ignored() -> None:
    assert ChunkedBody().feed(b"5;name=value\r\nhello\r\n") == b"hello"


def test_events_are_found_across_pieces() -> None:
    events = EventLines()

    assert events.feed(b': comment\n\ndata: {"a"') == []
    assert events.feed(b": 1}\r\n\r\nid: 3\ndata:[2]\n\ndata: [DO") == [b'{"a": 1}', b"[2]"]
    assert events.feed(b"NE]\n\n") == []


@pytest.mark.parametrize("script", [completions, chat])
@pytest.mark.asyncio
async def test_text_and_usage_are_read_from_both_kinds_of_streams(
    script: Callable[[Exchange], None],
) -> None:
    with a_peer(script) as peer:
        answer = await ask(a_request(peer.port, b'{"prompt": [1, 2]}'))

    assert answer.text == "Hello"
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 2)
    # the opening without text is no token
    assert len(answer.text_s) == 2
    assert answer.sent_s <= answer.text_s[0] <= answer.text_s[1]
    (exchange,) = peer.exchanges
    assert (exchange.method, exchange.path) == ("POST", "/v1/completions")
    assert exchange.inputs == {"prompt": [1, 2]}


@pytest.mark.asyncio
async def test_a_refusal_is_shown() -> None:
    with a_peer(lambda exchange: exchange.send_json({"problem": "busy"}, status=503)) as peer:
        with pytest.raises(BenchmarkError, match="busy"):
            await ask(a_request(peer.port))


@pytest.mark.asyncio
async def test_an_error_in_the_stream_is_an_error() -> None:
    def breaks(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event({"error": {"message": "the node vanished"}})
        exchange.end_stream()

    with a_peer(breaks) as peer:
        with pytest.raises(BenchmarkError, match="the node vanished"):
            await ask(a_request(peer.port))


@pytest.mark.asyncio
async def test_a_stream_that_ends_early_is_an_error() -> None:
    def breaks(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event({"choices": [{"text": "Hel"}]})

    with a_peer(breaks) as peer:
        with pytest.raises(BenchmarkError, match="closed in the middle"):
            await ask(a_request(peer.port))


@pytest.mark.asyncio
async def test_a_stream_without_usage_is_an_error() -> None:
    def forgets(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event({"choices": [{"text": "Hello"}]})
        exchange.end_stream()

    with a_peer(forgets) as peer:
        with pytest.raises(BenchmarkError, match="usage"):
            await ask(a_request(peer.port))


@pytest.mark.asyncio
async def test_a_closed_loop_sends_every_request_once_and_keeps_their_order() -> None:
    def echo(exchange: Exchange) -> None:
        exchange.start_stream()
        exchange.send_event({"choices": [{"text": str(exchange.inputs["number"])}]})
        exchange.send_event({"choices": [], "usage": USAGE})
        exchange.end_stream()

    with a_peer(echo) as peer:
        requests = [
            a_request(peer.port, json.dumps({"number": number}).encode()) for number in range(5)
        ]
        load = await closed_loop(requests, 2)

    assert [answer.text for answer in load.answers] == ["0", "1", "2", "3", "4"]
    assert load.tokens_per_s == pytest.approx(5 * 2 / load.total_s)


@pytest.mark.asyncio
async def test_a_closed_loop_has_as_many_requests_open_as_clients() -> None:
    # lets two requests pass at a time: fewer would never pass
    pair = threading.Barrier(2, timeout=PATIENCE_S)
    counting = threading.Lock()
    num_open = most_open = 0

    def answer(exchange: Exchange) -> None:
        nonlocal num_open, most_open
        with counting:
            num_open += 1
            most_open = max(most_open, num_open)
        pair.wait()
        with counting:
            num_open -= 1
        completions(exchange)

    with a_peer(answer) as peer:
        await closed_loop([a_request(peer.port) for _ in range(6)], 2)

    assert most_open == 2
