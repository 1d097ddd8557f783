"""Both model families through the whole edge, with their own tokenizers and formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.edges import RUN, Edge, State, an_edge
from support.requests import a_body
from support.text import ids_of
from support.token_source import FakeTokenSource
from tenantry_runtime.catalog import Catalog, load_catalog
from tenantry_runtime.edge.offer import Offer, load_offers
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.text import TextModel, load_text

# what each model says: it thinks, says something, and calls the tool
CALLING = {
    "@cf/moonshotai/kimi-k2.6": "hm</think>Let me look.<|tool_calls_section_begin|>"
    "<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>',
    "@cf/zai-org/glm-5.2": "hm</think>Let me look.<tool_call>get_weather<arg_key>city</arg_key>"
    "<arg_value>Paris</arg_value></tool_call><|observation|>",
}
ENDING = {"@cf/moonshotai/kimi-k2.6": "<|im_end|>", "@cf/zai-org/glm-5.2": "<|user|>"}

MODELS = sorted(CALLING)
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def texts() -> dict[str, TextModel]:
    return {entry.id: load_text(Path(entry.directory)) for entry in load_catalog().entries}


@pytest.fixture(scope="module")
def offers(texts: dict[str, TextModel]) -> list[Offer]:
    return [
        Offer(entry=entry, text=texts[entry.id], context_tokens=4096)
        for entry in load_catalog().entries
    ]


async def run(edge: Edge, model: str, **fields: Any) -> Any:
    async with edge.client() as client:
        response = await client.post(RUN.replace("kimi-k2.6", model), content=a_body(**fields))
    if fields.get("stream"):
        lines = [line.removeprefix("data: ") for line in response.text.split("\n\n")]
        return [json.loads(line) for line in lines if line.startswith("{")]
    return response.json()["result"]


@pytest.mark.asyncio
@pytest.mark.parametrize("model", MODELS)
async def test_thinking_answer_and_call_come_apart(
    state: State, texts: dict[str, TextModel], offers: list[Offer], model: str
) -> None:
    ids = ids_of(texts[model], CALLING[model])
    node = FakeTokenSource(*[[token_id] for token_id in ids])
    async with an_edge(state, node, offers=offers) as edge:
        result = await run(edge, model, tools=[WEATHER])

    [choice] = result["choices"]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert (message["reasoning"], message["content"]) == ("hm", "Let me look.")
    [call] = message["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    usage = result["usage"]
    assert usage["completion_tokens"] == len(ids)
    # the closing tag counts as reasoning
    num_thinking = len(texts[model].tokenizer.encode("hm")) + 1
    assert usage["completion_tokens_details"]["reasoning_tokens"] == num_thinking


@pytest.mark.asyncio
@pytest.mark.parametrize("model", MODELS)
async def test_a_streamed_call_follows_openais_protocol(
    state: State, texts: dict[str, TextModel], offers: list[Offer], model: str
) -> None:
    ids = ids_of(texts[model], CALLING[model])
    node = FakeTokenSource(*[[token_id] for token_id in ids])
    async with an_edge(state, node, offers=offers) as edge:
        chunks = await run(edge, model, tools=[WEATHER], stream=True)

    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    deltas = [call for choice in choices for call in choice["delta"].get("tool_calls", [])]
    first, *rest = deltas
    assert first["function"] == {"name": "get_weather", "arguments": ""}
    assert (first["index"], first["type"], bool(first["id"])) == (0, "function", True)
    assert all(set(delta) == {"index", "function"} for delta in rest)
    assert all(set(delta["function"]) == {"arguments"} for delta in rest)
    arguments = "".join(delta["function"]["arguments"] for delta in rest)
    assert json.loads(arguments) == {"city": "Paris"}
    assert choices[-1]["finish_reason"] == "tool_calls"


@pytest.mark.asyncio
@pytest.mark.parametrize("model", MODELS)
async def test_without_thinking_the_answer_is_content(
    state: State, texts: dict[str, TextModel], offers: list[Offer], model: str
) -> None:
    node = FakeTokenSource(ids_of(texts[model], "42" + ENDING[model]))
    async with an_edge(state, node, offers=offers) as edge:
        result = await run(edge, model, chat_template_kwargs={"thinking": False})

    message = result["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "42", "refusal": None}
    assert result["choices"][0]["finish_reason"] == "stop"
    assert result["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.asyncio
@pytest.mark.parametrize("model", MODELS)
async def test_a_call_that_is_cut_off_ends_by_length(
    state: State, texts: dict[str, TextModel], offers: list[Offer], model: str
) -> None:
    cut = CALLING[model].partition("Paris")[0]
    node = FakeTokenSource(ids_of(texts[model], cut))
    async with an_edge(state, node, offers=offers) as edge:
        result = await run(edge, model, tools=[WEATHER])

    assert result["choices"][0]["finish_reason"] == "length"


@pytest.mark.asyncio
@pytest.mark.parametrize("model", MODELS)
async def test_control_strings_of_a_user_are_text(
    state: State, texts: dict[str, TextModel], offers: list[Offer], model: str
) -> None:
    text = texts[model]
    strings = "".join(text.tokenizer.controls.ids)
    node = FakeTokenSource(ids_of(text, ENDING[model]))
    async with an_edge(state, node, offers=offers) as edge:
        for content in ("hi", strings):
            await run(edge, model, messages=[{"role": "user", "content": content}])

    plain, forged = (
        [token_id for token_id in submit.token_ids if token_id in text.tokenizer.controls]
        for submit in node.submits
    )
    assert forged == plain


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("reasoning_effort", {"reasoning_effort": "enormous"}),
        (
            "reasoning_effort",
            {"reasoning_effort": "none", "chat_template_kwargs": {"thinking": True}},
        ),
    ],
    ids=["unknown", "contradiction"],
)
@pytest.mark.parametrize("model", MODELS)
async def test_what_a_family_does_not_know_is_bad_input(
    state: State, offers: list[Offer], model: str, field: str, fields: dict[str, Any]
) -> None:
    async with an_edge(state, FakeTokenSource([0]), offers=offers) as edge:
        async with edge.client() as client:
            response = await client.post(RUN.replace("kimi-k2.6", model), content=a_body(**fields))

    [error] = response.json()["errors"]
    assert (response.status_code, error["code"]) == (400, 5006)
    assert f"'/{field}'" in error["message"]


@pytest.mark.asyncio
async def test_a_schema_of_any_depth_is_served_or_refused(
    state: State, offers: list[Offer]
) -> None:
    async with an_edge(state, FakeTokenSource([0]), offers=offers) as edge:
        async with edge.client() as client:
            for depth in (50, 200, 900, 5000):
                schema = b'{"a":' * depth + b"{}" + b"}" * depth
                body = b'{"prompt":"hi","tools":[{"name":"f","parameters":' + schema + b"}]}"
                response = await client.post(RUN, content=body)
                assert response.status_code in (200, 400), depth


@pytest.mark.asyncio
async def test_the_offers_of_a_catalog_have_text_and_context() -> None:
    catalog = load_catalog()

    offers = await load_offers(catalog)

    assert [offer.entry for offer in offers.all] == list(catalog.entries)
    for offer in offers.all:
        # at least what the built-in models are made for
        assert offer.context_tokens >= 4096
    assert offers.resolve("kimi-k2.6") is offers.resolve("@cf/moonshotai/kimi-k2.6")


@pytest.mark.asyncio
async def test_a_catalog_without_its_checkpoint_is_refused(tmp_path: Path) -> None:
    [entry, _] = load_catalog().entries
    moved = msgspec.structs.replace(entry, directory=str(tmp_path))

    with pytest.raises(CheckpointError, match=r"config\.json"):
        await load_offers(Catalog([moved]))
