"""What breaks again and again where engines serve these two families, and what happens here instead.

End to end through the edge, with both families' own templates and formats. What needs an engine or a
device is tested with those: grammars, hand-offs, pages of aborted requests, prefills beside decoding.
"""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from support.chat_stream import Streamed, read_stream
from support.edges import RUN, AsgiCall, State, an_edge
from support.families import (
    FAMILIES,
    MODELS,
    WEATHER,
    a_node,
    ask,
    family_offers,
    post,
    spoken,
    written,
)
from support.part_nodes import Cluster
from support.plain_text import END, GLM, KIMI
from support.requests import USER, a_body
from support.text import ids_of
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.errors import CacheIntegrityError, GenerationFailed, NodeLost, TenantryError

PARIS = [("get_weather", {"city": "Paris", "days": 2})]

either = pytest.mark.parametrize("model", MODELS)
each_way = pytest.mark.parametrize("stream", [False, True])


def a_tool(name: str, **properties: Any) -> Any:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


async def streamed(state: State, model: str, node: FakeTokenSource, **fields: Any) -> Streamed:
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, stream=True, **fields)
    assert response.status_code == 200, response.text
    return read_stream(response.text)


@pytest.mark.asyncio
@either
@pytest.mark.parametrize("num_per_step", [1, 2, 3, 1000])
async def test_no_marker_leaks_nor_is_anything_lost_however_many_tokens_a_step_has(
    state: State, model: str, num_per_step: int
) -> None:
    # longer than what some parsers hold back, or cut off
    long = "x" * 9000
    said = written(FAMILIES[model], "hm", "Before.", [("write", {"text": long}), *PARIS])
    steps = [said[at : at + num_per_step] for at in range(0, len(said), num_per_step)]
    tools = [a_tool("write", text={"type": "string"}), WEATHER]
    answer = await streamed(state, model, FakeTokenSource(*steps), tools=tools)

    assert (answer.reasoning, answer.content) == ("hm", "Before.")
    arguments = [json.loads(call.arguments) for call in answer.calls]
    assert arguments == [{"text": long}, PARIS[0][1]]
    assert answer.finish_reason == "tool_calls"


@pytest.mark.asyncio
@either
async def test_streams_beside_each_other_share_nothing(state: State, model: str) -> None:
    said = written(FAMILIES[model], "hm", "", PARIS)
    gates = [anyio.Event() for _ in range(3)]
    thirds = [said[: len(said) // 3], said[len(said) // 3 : -4], said[-4:]]
    script = [each for gate, third in zip(gates, thirds, strict=True) for each in (gate, third)]
    node = FakeTokenSource(*script, crowd=8)
    async with (
        an_edge(state, node, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):
        path = RUN.replace("kimi-k2.6", model)
        calls = [
            AsgiCall(edge=edge, body=a_body(stream=True, tools=[WEATHER]), path=path)
            for _ in range(8)
        ]
        for call in calls:
            tasks.start_soon(call)
        with anyio.fail_after(20):
            await node.crowded.wait()
            for gate in gates:
                gate.set()
                await anyio.wait_all_tasks_blocked()

    for call in calls:
        answer = read_stream(call.printed.decode())
        [made] = answer.calls
        assert (made.name, json.loads(made.arguments)) == PARIS[0]
        assert answer.finish_reason == "tool_calls"


@pytest.mark.asyncio
@either
@each_way
async def test_an_answer_without_a_call_never_ends_as_one_with_calls(
    state: State, model: str, stream: bool
) -> None:
    text = FAMILIES[model]
    begun = ids_of(text, "<|tool_calls_section_begin|>" if text.family == "kimi" else "<tool_call>")
    node = a_node(*written(text, "hm", "No need.")[:-1], *begun, min(text.stop_token_ids))
    async with an_edge(state, node, offers=family_offers()) as edge:
        response = await post(edge, model, stream=stream, tools=[WEATHER])

    if stream:
        answer = read_stream(response.text)
        assert (answer.calls, answer.finish_reason, answer.content) == ([], "stop", "No need.")
    else:
        [choice] = response.json()["result"]["choices"]
        assert choice["finish_reason"] == "stop"
        assert "tool_calls" not in choice["message"]


@pytest.mark.asyncio
@either
async def test_a_long_argument_is_streamed_while_it_is_written(state: State, model: str) -> None:
    text = FAMILIES[model]
    gate = anyio.Event()
    poem = 'Roses are "red",\nviolets \\ are é. '
    said = written(text, "", "", [("write", {"text": poem * 20})])
    half = len(said) // 2
    node = FakeTokenSource(said[:half], gate, said[half:])
    async with (
        an_edge(state, node, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):
        body = a_body(stream=True, tools=[a_tool("write", text={"type": "string"})])
        call = AsgiCall(edge=edge, body=body, path=RUN.replace("kimi-k2.6", model))
        tasks.start_soon(call)
        with anyio.fail_after(20):
            while b"Roses" not in call.printed:
                await anyio.lowlevel.checkpoint()
        arrived = read_stream(call.printed.decode()).calls[0].arguments
        gate.set()

    [whole] = read_stream(call.printed.decode()).calls
    # half of the tokens, and so about half of the text, as JSON that no later piece changes
    assert whole.arguments.startswith(arrived)
    assert len(whole.arguments) / 3 < len(arrived) < len(whole.arguments)
    assert json.loads(whole.arguments) == {"text": poem * 20}


@pytest.mark.asyncio
async def test_ids_of_a_clients_own_making_reach_the_model_as_its_own(state: State) -> None:
    text = FAMILIES[KIMI.id]
    ids = ["call_abc", "7", "functions.get-weather:5"]
    calls = [{"id": each, "function": {"name": "get-weather", "arguments": "{}"}} for each in ids]
    talk = [USER, {"role": "assistant", "tool_calls": calls}]
    talk += [{"role": "tool", "tool_call_id": each, "content": each} for each in reversed(ids)]
    node = a_node(*written(text, "", "", [("get-weather", {})], num_before=3))
    async with an_edge(state, node, offers=family_offers()) as edge:
        choice = await ask(edge, KIMI.id, messages=talk, tools=[a_tool("get-weather")])

    prompt = text.tokenizer
    said = b"".join(map(prompt.token_bytes, node.submits[0].token_ids)).decode()
    for number, each in enumerate(ids):
        assert f"## Return of functions.get-weather:{number}\n{each}" in said
    # the next one counts on
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["functions.get-weather:3"]


@pytest.mark.asyncio
@either
async def test_a_prompt_ends_where_the_answer_begins_and_empty_contents_are_no_text(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    node = a_node(*written(text, "", "ok"))
    async with an_edge(state, node, offers=family_offers()) as edge:
        contents: list[Any] = ["", None, []]
        for content in contents:
            await ask(edge, model, messages=[{"role": "system", "content": content}, USER])

    prompts = [submit.token_ids for submit in node.submits]
    assert prompts[0] == prompts[1] == prompts[2]
    opening = "<|im_assistant|>assistant<|im_middle|>" if text.family == "kimi" else "<|assistant|>"
    expected = ids_of(text, f"{opening}<think>")
    assert prompts[0][-len(expected) :] == expected
    said = b"".join(map(text.tokenizer.token_bytes, prompts[0])).decode()
    assert "None" not in said and "[]" not in said


@pytest.mark.asyncio
@either
@each_way
async def test_a_call_inside_thinking_ends_it_and_is_a_call(
    state: State, model: str, stream: bool
) -> None:
    text = FAMILIES[model]
    # no closing tag
    said = [*spoken(text, "I had better look"), *written(text, None, "", PARIS)]
    async with an_edge(state, a_node(*said), offers=family_offers()) as edge:
        response = await post(edge, model, stream=stream, tools=[WEATHER])

    if stream:
        answer = read_stream(response.text)
        assert (answer.reasoning, answer.content) == ("I had better look", "")
        assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == PARIS
        assert answer.finish_reason == "tool_calls"
    else:
        [choice] = response.json()["result"]["choices"]
        assert choice["message"]["reasoning"] == "I had better look"
        assert len(choice["message"]["tool_calls"]) == 1


@pytest.mark.asyncio
@either
async def test_a_draft_of_a_call_in_words_stays_thinking(state: State, model: str) -> None:
    draft = "<|tool_call_begin|>functions.get_weather:0 <tool_call>get_weather</tool_call>"
    node = a_node(*written(FAMILIES[model], draft, "No need."))
    answer = await streamed(state, model, node, tools=[WEATHER])

    assert (answer.reasoning, answer.content, answer.calls) == (draft, "No need.", [])


@pytest.mark.asyncio
@either
@each_way
async def test_what_is_thinking_is_decided_by_the_prompt(
    state: State, model: str, stream: bool
) -> None:
    text = FAMILIES[model]
    # cut off by the limit, with no closing tag in either
    node = a_node(*spoken(text, "so far"))
    found = []
    async with an_edge(state, node, offers=family_offers()) as edge:
        for thinking in (True, False):
            kwargs = {"thinking": thinking}
            response = await post(edge, model, stream=stream, chat_template_kwargs=kwargs)
            if stream:
                answer = read_stream(response.text)
                found.append((answer.reasoning, answer.content))
            else:
                message = response.json()["result"]["choices"][0]["message"]
                found.append((message.get("reasoning", ""), message["content"]))

    assert found == [("so far", ""), ("", "so far")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("schema", "raw", "value"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "nullify", "nullify"),
        ({"type": "array", "items": {"type": "string"}}, '["a", "b"]', ["a", "b"]),
        ({"$ref": "#/$defs/count"}, "5", 5),
        ({"enum": ["5", "6"]}, "5", "5"),
        (None, "5", "5"),
    ],
)
async def test_an_argument_has_the_type_that_the_whole_schema_says(
    state: State, schema: Any, raw: str, value: Any
) -> None:
    text = FAMILIES[GLM.id]
    tool = a_tool("f", **({} if schema is None else {"x": schema}))
    tool["function"]["parameters"]["$defs"] = {"count": {"type": "integer"}}
    node = a_node(*written(text, "", "", [("f", {"x": raw})]))
    answer = await streamed(state, GLM.id, node, tools=[tool])

    [call] = answer.calls
    assert json.loads(call.arguments) == {"x": value}


@pytest.mark.asyncio
@either
@pytest.mark.parametrize("form", ["nested", "flat", "flat and typed"])
async def test_a_call_without_arguments_is_an_empty_object_whatever_form_the_tool_came_in(
    state: State, model: str, form: str
) -> None:
    flat = {"name": "now", "description": "The time"}
    tool: Any = {"type": "function", "function": flat} if form == "nested" else flat
    if form == "flat and typed":
        tool = {"type": "function", **flat}
    node = a_node(*written(FAMILIES[model], "", "", [("now", {})]))
    answer = await streamed(state, model, node, tools=[tool])

    assert [(call.name, call.arguments) for call in answer.calls] == [("now", "{}")]


@pytest.mark.asyncio
@either
@each_way
async def test_a_call_that_is_cut_off_is_not_claimed(
    state: State, model: str, stream: bool
) -> None:
    said = written(FAMILIES[model], "hm", "", PARIS)
    for end in range(1, len(said)):
        # the node says `length` to what does not end with a stop token
        node = FakeTokenSource(said[:end])
        async with an_edge(state, node, offers=family_offers()) as edge:
            response = await post(edge, model, stream=stream, tools=[WEATHER])
        if stream:
            assert read_stream(response.text).finish_reason == "length"
        else:
            assert response.json()["result"]["choices"][0]["finish_reason"] == "length"


@pytest.mark.asyncio
@either
@pytest.mark.parametrize(
    "error", [GenerationFailed("aborted"), NodeLost("m"), CacheIntegrityError("a page")]
)
async def test_an_abort_is_an_error_status_before_the_first_token_and_an_error_event_after_it(
    state: State, model: str, error: TenantryError
) -> None:
    begun = spoken(FAMILIES[model], "so far")
    async with an_edge(state, FakeTokenSource(error), offers=family_offers()) as edge:
        refused = await post(edge, model, stream=True)
    async with an_edge(state, FakeTokenSource(begun, error), offers=family_offers()) as edge:
        broken = await post(edge, model, stream=True)
        whole = await post(edge, model)

    assert refused.status_code >= 500
    assert whole.status_code >= 500
    answer = read_stream(broken.text)
    assert (answer.ended, answer.reasoning) == ("error", "so far")
    assert "[DONE]" not in broken.text


@pytest.mark.asyncio
@each_way
async def test_cached_and_reasoning_tokens_are_the_same_where_two_nodes_share_the_work(
    state: State, stream: bool
) -> None:
    # the first token, which the prefill side makes, is thinking too
    cluster = Cluster(text=f"hm\x02ok{END}")
    fields = {"stream": stream, "chat_template_kwargs": {"thinking": True}}
    async with an_edge(state, cluster.nodes) as edge:
        response = await edge.run(**fields)
    async with an_edge(state, FakeTokenSource(f"hm\x02ok{END}")) as edge:
        alone = await edge.run(**fields)

    def usage_of(text: str) -> Any:
        return read_stream(text).usage if stream else json.loads(text)["result"]["usage"]

    usage = usage_of(response.text)
    assert usage == usage_of(alone.text)
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert usage["completion_tokens"] == 6


@pytest.mark.asyncio
@each_way
async def test_who_leaves_at_any_moment_leaves_nothing_behind(state: State, stream: bool) -> None:
    for num_rounds in range(0, 40, 3):
        node = FakeTokenSource([102], endless=True)
        async with (
            an_edge(state, node, offers=family_offers()) as edge,
            anyio.create_task_group() as tasks,
        ):
            call = AsgiCall(edge=edge, body=a_body(stream=stream))
            tasks.start_soon(call)
            for _ in range(num_rounds):
                await anyio.lowlevel.checkpoint()
            call.leaves.set()
        assert node.num_open == 0
        assert edge.services.open_requests.statistics().num_open == 0
        for member in edge.services.nodes.router.members:
            assert not member.placements


@pytest.mark.asyncio
async def test_health_is_told_while_every_answer_waits_and_asks_no_model(state: State) -> None:
    node = FakeTokenSource(anyio.Event(), crowd=4)
    limits = Limits(max_requests=4)
    async with (
        an_edge(state, node, limits=limits, offers=family_offers()) as edge,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(4):
            tasks.start_soon(AsgiCall(edge=edge, body=a_body(stream=True)))
        with anyio.fail_after(20):
            await node.crowded.wait()
        alive, ready = await edge.get("/health"), await edge.get("/ready")
        node.is_healthy = False
        lost = await edge.get("/ready")
        tasks.cancel_scope.cancel()

    assert (alive.status_code, ready.status_code, lost.status_code) == (200, 200, 503)
    assert len(node.submits) == 4


@pytest.mark.asyncio
@either
async def test_preserved_thinking_is_kept_and_the_prompt_goes_on_from_what_is_cached(
    state: State, model: str
) -> None:
    text = FAMILIES[model]
    said = written(text, "because", "So be it.")
    node = a_node(*said)
    keep = {"chat_template_kwargs": {"clear_thinking": False}}
    async with an_edge(state, node, offers=family_offers()) as edge:
        for fields in (keep, {}):
            message = (await ask(edge, model, **fields))["message"]
            await ask(edge, model, messages=[USER, message, USER], **fields)

    first, kept, _, dropped = (submit.token_ids for submit in node.submits)
    assert kept[: len(first) + len(said)] == first + said
    assert dropped[: len(first)] == first
    assert dropped[len(first)] == ids_of(text, "</think>")[0]
