"""The samples for workers in real guests: what tests of them rely on is what an isolate does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.byte_streams import Pieces
from support.guests import Answer, Guests, Heard, a_worker, an_invocation, fetched, whole
from tenantry.workers.testing import completion, tool_call
from tenantry_runtime.workers.interface import ByteStream, HttpRequest, HttpResponse, StreamResult
from tenantry_runtime.workers.spec import AiBinding, Binding, JsonBinding, KvBinding, TextBinding

SAMPLES = Path(__file__).resolve().parents[4] / "samples" / "workers"


def sample(name: str) -> dict[str, Any]:
    """Return what `a_worker` needs of a sample."""
    config = json.loads((SAMPLES / name / "wrangler.jsonc").read_text())
    bindings: list[Binding] = [AiBinding(name=config["ai"]["binding"])]
    bindings += [
        KvBinding(name=each["binding"], namespace_id=each["id"])
        for each in config.get("kv_namespaces", ())
    ]
    bindings += [
        TextBinding(name=key, text=value)
        if isinstance(value, str)
        else JsonBinding(name=key, json=1)
        for key, value in config["vars"].items()
    ]
    code = (SAMPLES / name / config["main"]).read_text()
    return {"code": code, "bindings": bindings, "values": config["vars"]}


def answers(*results: object) -> tuple[Answer, list[list[Any]]]:
    """Answer runs in their order, and KV with nothing; the arguments of runs are kept."""
    runs: list[list[Any]] = []

    async def answer(
        binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object:
        if binding != "AI":
            return {"keys": [], "list_complete": True} if method == "list" else None
        runs.append(list(args))
        return results[len(runs) - 1]

    return answer, runs


def post(path: str, content: Any, **headers: str) -> HttpRequest:
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HttpRequest(method="POST", url=f"http://w{path}", headers=pairs, body=body)


@pytest.mark.asyncio
async def test_hello_ai_answers_a_question(guests: Guests) -> None:
    answer, runs = answers(completion("Because of Rayleigh."))
    heard = Heard(answer)
    async with a_worker(guests, **sample("hello-ai")) as isolate:
        assert await fetched(isolate, "/?q=Why", heard) == b"Because of Rayleigh.\n"
    assert runs == [
        ["@cf/moonshotai/kimi-k2.6", {"messages": [{"role": "user", "content": "Why"}]}, {}]
    ]
    assert heard.texts == ["15 tokens for 'Why'"]


@pytest.mark.asyncio
async def test_streaming_chat_passes_the_runtimes_own_stream_on(guests: Guests) -> None:
    stream = Pieces(b"data: {}\n\n", b"data: [DONE]\n\n")
    answer, _ = answers(StreamResult(stream=stream))
    async with a_worker(guests, **sample("streaming-chat")) as isolate:
        request = post("/chat", {"messages": []})
        async with isolate.fetch(request, an_invocation(), Heard(answer)) as response:
            assert response.body is stream
            assert ("content-type", "text/event-stream") in list(response.headers)


@pytest.mark.asyncio
async def test_tool_agent_calls_its_tools(guests: Guests) -> None:
    call = tool_call("book_table", city="Rome", guests=4)
    answer, runs = answers(completion(tool_calls=[call]), completion("Booked."))
    async with a_worker(guests, **sample("tool-agent")) as isolate:
        request = post("/", b"A table?", x_session_affinity="ada")
        async with isolate.fetch(request, an_invocation(), Heard(answer)) as response:
            assert await whole(response.body) == b"Booked.\n"
    assert runs[1][1]["messages"][-1]["content"] == (
        '{"booking": "RO-4", "city": "Rome", "guests": 4}'
    )
    assert runs[1][2] == {"extraHeaders": {"x-session-affinity": "ada"}}


@pytest.mark.asyncio
async def test_fastapi_app_answers_whole_and_in_pieces(guests: Guests) -> None:
    chunks = [{"choices": [{"delta": {"content": text}}]} for text in ("Bon", "jour")]
    events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    stream = Pieces(*events, b"data: [DONE]\n\n")
    answer, _ = answers(completion("Bonjour"), StreamResult(stream=stream))
    heard = Heard(answer)
    async with a_worker(guests, **sample("fastapi-app")) as isolate:
        asked = {"text": "Hello"}
        for path, expected in [
            ("/translate", b'{"language":"French","text":"Bonjour"}'),
            ("/translate/stream", b"Bonjour"),
        ]:
            request = post(path, asked, content_type="application/json")
            async with isolate.fetch(request, an_invocation(), heard) as response:
                assert response.status == 200
                assert await whole(response.body) == expected
    assert (heard.errors, heard.texts) == ([], [])


@pytest.mark.asyncio
async def test_cron_summarizer_writes_what_is_due(guests: Guests) -> None:
    ai, runs = answers(completion("Short."))
    written: list[Sequence[Any]] = []

    async def answer(
        binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object:
        if binding == "FETCH":
            return HttpResponse(status=200, body=b"A page.", url=str(args[1]))
        if method == "put":
            written.append(args)
        return await ai(binding, method, args, body)

    async with a_worker(guests, **sample("cron-summarizer")) as isolate:
        await isolate.scheduled("0 * * * *", 3_600_000, an_invocation(), Heard(answer))
    assert runs[0][1]["messages"][0]["content"].endswith("\n\nA page.")
    metadata = {"source": "https://example.com/", "tokens": 15}
    options = {"expirationTtl": 604_800, "metadata": metadata}
    assert [list(args) for args in written] == [["1970-01-01T01:00", "Short.", options]]
