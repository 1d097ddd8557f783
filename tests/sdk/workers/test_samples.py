"""The samples for workers do what they say, with models that answer what a test says."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tenantry.workers import Request, Response
from tenantry.workers.testing import FakeAI, FakeFetch, FakeKV, completion, open_worker, tool_call

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "workers"
NAMES = ["cron-summarizer", "fastapi-app", "hello-ai", "streaming-chat", "tool-agent"]


def project(name: str) -> tuple[Path, dict[str, Any]]:
    """Return a sample's main module and its vars, as its configuration has them."""
    config = json.loads((SAMPLES / name / "wrangler.jsonc").read_text())
    return SAMPLES / name / config["main"], config["vars"]


def test_these_are_the_samples() -> None:
    assert sorted(path.name for path in SAMPLES.iterdir() if path.is_dir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_a_project_of_cloudflares_layout(name: str) -> None:
    config = json.loads((SAMPLES / name / "wrangler.jsonc").read_text())
    pyproject = tomllib.loads((SAMPLES / name / "pyproject.toml").read_text())
    assert config["name"] == pyproject["project"]["name"] == name
    assert config["compatibility_flags"] == ["python_workers"]
    sources = list((SAMPLES / name / "src").rglob("*.py"))
    assert SAMPLES / name / config["main"] in sources
    assert sum(len(path.read_text().splitlines()) for path in sources) <= 60


@pytest.mark.asyncio
async def test_hello_ai_answers_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    main, values = project("hello-ai")
    ai = FakeAI("Because of Rayleigh.")
    async with open_worker(main, env={"AI": ai, **values}) as worker:
        response = await worker.fetch("/?q=Why+is+the+sky+blue")
        assert await response.text() == "Because of Rayleigh.\n"
        assert (await worker.fetch("/")).status == 400
    assert ai.calls[0].model == "@cf/moonshotai/kimi-k2.6"
    assert ai.calls[0].inputs["messages"] == [{"role": "user", "content": "Why is the sky blue"}]
    assert capsys.readouterr().out == "15 tokens for 'Why is the sky blue'\n"


@pytest.mark.asyncio
async def test_streaming_chat_passes_the_stream_on() -> None:
    main, values = project("streaming-chat")
    ai = FakeAI("Hello there")
    async with open_worker(main, env={"AI": ai, **values}) as worker:
        page = await worker.fetch("/")
        assert page.headers["content-type"] == "text/html;charset=UTF-8"
        # what the page splits the stream at is written in JavaScript
        assert '.split("\\n\\n")' in await page.text()
        messages = [{"role": "user", "content": "Hi"}]
        body = json.dumps({"messages": messages})
        response = await worker.fetch("/chat", method="POST", body=body)
        assert response.headers["content-type"] == "text/event-stream"
        assert (await response.text()).endswith("\n\ndata: [DONE]\n\n")
        assert (await worker.fetch("/nothing")).status == 404
    assert ai.calls[0].inputs == {"messages": messages, "stream": True}
    assert ai.calls[0].was_passed_on


@pytest.mark.asyncio
async def test_tool_agent_calls_tools_and_remembers_the_session() -> None:
    main, values = project("tool-agent")
    kv = FakeKV()
    asked = completion(tool_calls=[tool_call("book_table", city="Rome", guests=4)])
    ai = FakeAI(asked, "Booked: RO-4.", "You are welcome.")
    headers = {"x-session-affinity": "ada"}
    async with open_worker(main, env={"AI": ai, "SESSIONS": kv, **values}) as worker:
        first = await worker.fetch("/", method="POST", headers=headers, body="A table for 4?")
        assert await first.text() == "Booked: RO-4.\n"
        await worker.settle()
        second = await worker.fetch("/", method="POST", headers=headers, body="Thanks.")
        assert await second.text() == "You are welcome.\n"
        await worker.settle()
    assert {call.options["extraHeaders"]["x-session-affinity"] for call in ai.calls} == {"ada"}
    told = ai.calls[1].inputs["messages"][-1]
    assert told["tool_call_id"] == "call_book_table"
    assert json.loads(told["content"]) == {"booking": "RO-4", "city": "Rome", "guests": 4}
    roles = [message["role"] for message in json.loads(kv.values["ada"])]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


@pytest.mark.asyncio
async def test_tool_agent_does_not_call_tools_for_ever() -> None:
    main, values = project("tool-agent")
    asked = completion(tool_calls=[tool_call("book_table", city="Rome", guests=4)])
    ai = FakeAI(asked)
    async with open_worker(main, env={"AI": ai, "SESSIONS": FakeKV(), **values}) as worker:
        assert (await worker.fetch("/", method="POST", body="A table?")).status == 502
    assert len(ai.calls) == 5


@pytest.mark.asyncio
async def test_fastapi_app_translates_and_refuses() -> None:
    main, values = project("fastapi-app")
    ai = FakeAI("Bonjour", "Hola a todos", completion("Hal", finish_reason="length"))
    headers = {"content-type": "application/json"}

    async with open_worker(main, env={"AI": ai, **values}) as worker:

        async def post(path: str, **inputs: str) -> Response:
            body = json.dumps(inputs)
            return await worker.fetch(path, method="POST", headers=headers, body=body)

        assert await (await post("/translate", text="Hello")).json() == {
            "language": "French",
            "text": "Bonjour",
        }
        streamed = await post("/translate/stream", text="Hello all", language="Spanish")
        assert await streamed.text() == "Hola a todos"
        assert (await post("/translate", text="Hello")).status == 502
        refused = await post("/translate", text="")
        assert refused.status == 422
        assert (await refused.json())["detail"][0]["loc"] == ["body", "text"]
    assert "Spanish" in ai.calls[1].inputs["messages"][0]["content"]


@pytest.mark.asyncio
async def test_cron_summarizer_keeps_a_summary_and_shows_the_latest() -> None:
    main, values = project("cron-summarizer")

    def page(request: Request) -> Response:
        return Response("A very long page." * 10_000)

    kv = FakeKV()
    ai = FakeAI("Short.", "Shorter.")
    outside = FakeFetch(page)
    env = {"AI": ai, "SUMMARIES": kv, **values}
    async with open_worker(main, env=env, fetch=outside) as worker:
        assert (await worker.fetch("/")).status == 404
        await worker.scheduled("0 * * * *", 0)
        await worker.scheduled("0 * * * *", 3_600_000)
        shown = await (await worker.fetch("/")).text()
    assert shown == "1970-01-01T01:00 https://example.com/\n\nShorter.\n"
    assert kv.values == {"1970-01-01T00:00": "Short.", "1970-01-01T01:00": "Shorter."}
    assert [request.url for request in outside.requests] == ["https://example.com/"] * 2
    assert len(ai.calls[0].inputs["messages"][0]["content"]) < 21_000
