"""Bodies of real clients are answered, whole and streamed, and both say the same."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.client_bodies import RECORDED, Recorded
from support.edges import RUN, State, an_edge
from support.openai_calls import ROOT, events
from support.plain_text import END, THINK_END
from support.token_source import FakeTokenSource

SCRIPT = f"h{THINK_END}4", f"2{END}"

every_body = pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded.name)


async def post(state: State, recorded: Recorded, **fields: Any) -> httpx.Response:
    path = RUN if recorded.route == "run" else f"{ROOT}/{recorded.route}"
    async with an_edge(state, FakeTokenSource(*SCRIPT)) as edge, edge.client() as client:
        return await client.post(path, json={**recorded.body, **fields})


def said(recorded: Recorded, answer: Any) -> list[tuple[str, str]]:
    """Return text and reason of each choice of a whole answer."""
    match recorded.route:
        case "responses":
            items = [item for item in answer["output"] if item["type"] == "message"]
            return [(item["content"][0]["text"], answer["status"]) for item in items]
        case "completions":
            return [(each["text"], each["finish_reason"]) for each in answer["choices"]]
        case _:
            return [
                (each["message"]["content"], each["finish_reason"]) for each in answer["choices"]
            ]


def streamed(recorded: Recorded, records: list[Any]) -> list[tuple[str, str]]:
    """Return the same of a stream."""
    if recorded.route == "responses":
        return said(recorded, records[-1]["response"])
    assert records.pop() == "[DONE]"
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for record in records:
        for choice in record["choices"]:
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            texts[choice["index"]] = texts.get(choice["index"], "") + piece
            if choice["finish_reason"]:
                reasons[choice["index"]] = choice["finish_reason"]
    return [(text, reasons[index]) for index, text in sorted(texts.items())]


@every_body
@pytest.mark.asyncio
async def test_a_body_is_answered_whole_and_streamed(state: State, recorded: Recorded) -> None:
    whole = await post(state, recorded, stream=False, stream_options=None)
    stream = await post(state, recorded, stream=True)

    assert (whole.status_code, stream.status_code) == (200, 200)
    answer = whole.json()
    choices = said(recorded, answer["result"] if recorded.route == "run" else answer)
    assert len(choices) == recorded.body.get("n", 1)
    # the script's thinking ends where there is none too
    assert all(text.endswith("42") for text, _ in choices)
    assert streamed(recorded, events(stream)) == choices


@every_body
@pytest.mark.asyncio
async def test_a_misspelled_parameter_is_refused_by_name(state: State, recorded: Recorded) -> None:
    response = await post(state, recorded, max_tokns=5)

    assert response.status_code == 400
    assert "'/max_tokns': is not supported" in response.json()["errors"][0]["message"]
