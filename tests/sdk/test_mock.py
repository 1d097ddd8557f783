"""`MockTransport`: what users' tests are made with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import assert_type

import httpx
import pytest

import tenantry
from support.answers import a_chunk, a_completion, a_model
from tenantry import AI, AsyncAI, AsyncStream, Completion, MockTransport, Stream


def pong(request: httpx.Request) -> str:
    assert json.loads(request.content)["prompt"] == "ping"
    return "pong for you"


def test_text_is_an_answer() -> None:
    with AI(transport=MockTransport(pong)) as ai:
        answer = ai.run("kimi-k2.6", {"prompt": "ping"})
    assert_type(answer, Completion)
    assert (answer.text, answer.model, answer.finish_reason) == (
        "pong for you",
        "kimi-k2.6",
        "stop",
    )
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize("text", ["pong for you", "", " two  spaces ", "\n", "lines\n\nof text"])
def test_text_is_a_stream_where_one_is_asked_for(text: str) -> None:
    with AI(transport=MockTransport(lambda _: text)) as ai:
        stream = ai.run("kimi-k2.6", {"prompt": "ping"}, stream=True)
        assert_type(stream, Stream)
        assert "".join(chunk.text for chunk in stream) == text
    assert stream.finish_reason == "stop"
    assert stream.usage is not None


@pytest.mark.asyncio
async def test_it_serves_the_asynchronous_client_too() -> None:
    async with AsyncAI(transport=MockTransport(pong)) as ai:
        answer = await ai.run("kimi-k2.6", {"prompt": "ping"})
        assert_type(answer, Completion)
        assert answer.text == "pong for you"
        async with await ai.run("kimi-k2.6", {"prompt": "ping"}, stream=True) as stream:
            assert_type(stream, AsyncStream)
            assert [chunk.text async for chunk in stream] == ["pong", " for", " you", "", ""]


def test_a_mapping_is_a_result_and_a_list_the_chunks() -> None:
    with AI(transport=MockTransport(lambda _: a_completion("42"))) as ai:
        assert ai.run("kimi-k2.6", {"prompt": "?"}).text == "42"
    with AI(transport=MockTransport(lambda _: [a_chunk(content="42")])) as ai:
        assert [chunk.text for chunk in ai.run("kimi-k2.6", {}, stream=True)] == ["42"]
    with AI(transport=MockTransport(lambda _: [a_model("mine")])) as ai:
        assert [model.name for model in ai.models()] == ["mine"]


def test_a_mapping_is_no_stream() -> None:
    with (
        AI(transport=MockTransport(lambda _: a_completion())) as ai,
        pytest.raises(TypeError, match="return a list of chunks"),
    ):
        ai.run("kimi-k2.6", {}, stream=True)


def test_the_documented_error_is_one() -> None:
    full = httpx.Response(429, json={"errors": [{"code": 3040}]})
    waits_s: list[float] = []
    with (
        AI(transport=MockTransport(lambda _: full), sleep=waits_s.append) as ai,
        pytest.raises(tenantry.CapacityExceeded),
    ):
        ai.run("kimi-k2.6", {"prompt": "?"})
    assert len(waits_s) == 2


def test_the_machines_configuration_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials.json").write_text("broken")
    monkeypatch.setenv("TENANTRY_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("TENANTRY_ACCOUNT_ID", "real")
    with AI(transport=MockTransport(pong)) as ai:
        assert repr(ai).startswith("AI(base_url='http://mock.invalid/client/v4', account_id='mock'")
