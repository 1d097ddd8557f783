"""Sequences with a grammar, on engines whose model knows nothing: what they say fits all the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from support.constrained import (
    CLOCK,
    WEATHER,
    a_constrained_submit,
    a_random_engine,
    read_answer,
)
from support.engine import MODEL, Transcript, a_submit, assert_nothing_is_held, run_to_end
from support.examples import examples
from support.pools import Cluster
from tenantry_runtime.core import FinishReason, JsonFormat, Tool, ToolChoice
from tenantry_runtime.engine.arrivals import MAX_OF_TENANT
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import Constraint, Submit
from tenantry_runtime.text import OutputState, Wanted

FAMILIES = ("kimi", "glm")
BOTH = pytest.mark.parametrize("family", FAMILIES)
NUM_PAGES = 64

_NAMES = st.sampled_from(["a", "b", "city", "a/b", 'quo"te', "é"])
_SCALARS = st.one_of(
    st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 8)),
    st.builds(lambda n: {"type": "integer", "minimum": n, "maximum": n + 90}, st.integers(-99, 99)),
    st.just({"type": "integer"}),
    st.just({"type": "number"}),
    st.just({"type": "boolean"}),
    st.just({"enum": ["x", 5, None, "two words"]}),
    st.just({"type": "string", "pattern": "^[a-f]{2,4}$"}),
    st.just({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}),
)


def _objects(values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(_NAMES, values, max_size=4)
    return st.builds(
        lambda listed, number: {
            "type": "object",
            "properties": listed,
            "required": list(listed)[:number],
        },
        properties,
        st.integers(0, 4),
    )


def _arrays(values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda items, most: {"type": "array", "items": items, "maxItems": most},
        values,
        st.integers(0, 3),
    )


_SCHEMAS = st.recursive(_SCALARS, lambda inner: _objects(inner) | _arrays(inner), max_leaves=6)
_PARAMETERS = _objects(_SCHEMAS)


def is_valid(value: Any, schema: Mapping[str, Any]) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


def said_by(loop: EngineLoop, *submits: Submit) -> Transcript:
    for submit in submits:
        loop.submit(submit)
    return run_to_end(loop)


def content_of(family: str, transcript: Transcript, name: str) -> str:
    assert transcript.finish_reason(name) is FinishReason.STOP, transcript.failed
    return read_answer(family, transcript.tokens[name]).content


@examples(0.4)
@given(schema=_SCHEMAS, seed=st.integers(0, 1 << 40), family=st.sampled_from(FAMILIES))
def test_json_from_noise_fits_its_schema(schema: dict[str, Any], seed: int, family: str) -> None:
    wanted = Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema=schema))
    loop = a_random_engine(family, num_pages=NUM_PAGES)
    submit = a_constrained_submit("r", family, wanted, seed=seed, max_tokens=1500)
    content = content_of(family, said_by(loop, submit), "r")
    assert is_valid(json.loads(content), schema), content


@examples(0.4)
@given(
    parameters=_PARAMETERS,
    seed=st.integers(0, 1 << 40),
    family=st.sampled_from(FAMILIES),
    is_thinking=st.booleans(),
)
def test_calls_from_noise_fit_their_schemas(
    parameters: dict[str, Any], seed: int, family: str, is_thinking: bool
) -> None:
    tools = (CLOCK, Tool(name="f", parameters=parameters))
    initial = OutputState.REASONING if is_thinking else OutputState.CONTENT
    wanted = Wanted(
        initial=initial, tools=tools, choice=ToolChoice(mode="required", name="f"), has_many=False
    )
    loop = a_random_engine(family, num_pages=NUM_PAGES)
    submit = a_constrained_submit(
        "r", family, wanted, seed=seed, max_tokens=1500, bias={"</think>": 9.0}
    )
    transcript = said_by(loop, submit)
    assert transcript.finish_reason("r") is FinishReason.STOP, transcript.failed
    answer = read_answer(family, transcript.tokens["r"], initial=initial, tools=tools)
    assert [start.name for start in answer.starts] == ["f"]
    assert (answer.content.strip(), answer.num_tool_calls) == ("", 1)
    assert is_valid(json.loads(answer.arguments(0)), parameters), answer.arguments(0)


@BOTH
def test_without_its_grammar_noise_fits_nothing(family: str) -> None:
    wanted = Wanted(initial=OutputState.CONTENT, format=JsonFormat())
    submit = a_constrained_submit("r", family, wanted, max_tokens=200)
    transcript = said_by(a_random_engine(family), replace(submit, constraint=None))
    with pytest.raises(ValueError, match=r".+"):
        json.loads(read_answer(family, transcript.tokens["r"]).content)


OPENINGS = {
    "kimi": {"<|tool_calls_section_begin|>": 7.0, "<|tool_calls_section_end|>": 3.0},
    "glm": {"<tool_call>": 7.0},
}


@BOTH
@pytest.mark.parametrize("initial", [OutputState.CONTENT, OutputState.REASONING])
def test_calls_that_noise_makes_of_its_own_accord_fit(family: str, initial: OutputState) -> None:
    tools = (WEATHER, CLOCK)
    wanted = Wanted(initial=initial, tools=tools)
    num_calls = 0
    for seed in range(4):
        submit = a_constrained_submit("r", family, wanted, seed=seed, bias=OPENINGS[family])
        transcript = said_by(a_random_engine(family), submit)
        answer = read_answer(family, transcript.tokens["r"], initial=initial, tools=tools)
        for index in range(answer.num_tool_calls):
            start = answer.starts[index]
            [schema] = [tool.parameters for tool in tools if tool.name == start.name]
            assert is_valid(json.loads(answer.arguments(index)), schema)
        num_calls += answer.num_tool_calls
    assert num_calls > 10


def a_mix(family: str) -> list[Submit]:
    """Make sequences with grammars and without, long enough to get into each other's way."""
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 40, "maxItems": 50}
    array = Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema=schema))
    return [
        *(
            a_constrained_submit(
                f"array {n}", family, array, seed=n, tenant=f"tenant {n}", max_tokens=310
            )
            for n in range(4)
        ),
        *(
            replace(a_constrained_submit(f"free {n}", family, array, seed=n), constraint=None)
            for n in range(2)
        ),
    ]


def alone(family: str, submits: Sequence[Submit]) -> dict[str, list[int]]:
    """Return what each says when nobody else is there."""
    return {
        submit.request_id: said_by(a_random_engine(family, num_pages=NUM_PAGES), submit).tokens[
            submit.request_id
        ]
        for submit in submits
    }


@BOTH
def test_a_batch_changes_no_answer(family: str) -> None:
    loop = a_random_engine(family, num_pages=NUM_PAGES)
    assert said_by(loop, *a_mix(family)).tokens == alone(family, a_mix(family))
    assert_nothing_is_held(loop, NUM_PAGES)


@BOTH
@pytest.mark.parametrize("separate_pools", [False, True], ids=["one pool", "two pools"])
def test_preempted_sequences_go_on_where_their_grammars_were(
    family: str, separate_pools: bool
) -> None:
    arrays = a_mix(family)[:4]
    expected = alone(family, arrays)
    loop = a_random_engine(family, num_pages=5, separate_pools=separate_pools)
    transcript = said_by(loop, *arrays)
    assert sum(lane.scheduler.statistics().num_preemptions for lane in loop.lanes)
    assert transcript.tokens == expected


@BOTH
def test_two_nodes_say_what_one_says(family: str) -> None:
    arrays = a_mix(family)[:4]
    expected = alone(family, arrays)
    exchange = LocalExchange()
    cluster = Cluster(
        {
            "prefill": a_random_engine(
                family,
                num_pages=16,
                phases=("prefill",),
                port=exchange.port("prefill", num_slots=64),
            ),
            "decode": a_random_engine(
                family,
                num_pages=5,
                phases=("decode",),
                port=exchange.port("decode", num_slots=64),
            ),
        }
    )
    for submit in arrays:
        cluster.send(submit, "prefill", "decode")
    assert cluster.run_to_end().tokens == expected
    assert sum(errand.num_restarts for errand in cluster.errands.values())


def test_a_grammar_that_is_none_fails_its_sequence_alone() -> None:
    loop = a_random_engine("kimi")
    free, fine = a_mix("kimi")[4], a_mix("kimi")[0]
    bad = replace(fine, request_id="bad", constraint=Constraint(lark="start: nothing"))
    transcript = said_by(loop, bad, free, fine)
    assert transcript.failed.keys() == {"bad"}
    assert transcript.failed["bad"].reason == "internal"
    assert transcript.finished.keys() == {free.request_id, fine.request_id}
    assert_nothing_is_held(loop)


def test_an_answer_that_has_left_its_grammar_fails_alone() -> None:
    loop = a_random_engine("kimi")
    free, fine = a_mix("kimi")[4], a_mix("kimi")[0]
    # of its tokens the last are said to be generated, and no array begins so
    lost = replace(fine, request_id="lost", num_generated=2)
    transcript = said_by(loop, lost, free, fine)
    assert {name: failed.reason for name, failed in transcript.failed.items()} == {
        "lost": "internal"
    }
    assert transcript.finished.keys() == {free.request_id, fine.request_id}


def test_a_sequence_can_be_canceled_while_its_grammar_is_compiled() -> None:
    loop = a_random_engine("kimi")
    fine = a_mix("kimi")[0]
    loop.submit(fine)
    assert not loop.is_idle
    loop.cancel(fine.request_id)
    assert run_to_end(loop).tokens == {}
    assert_nothing_is_held(loop)


def test_a_request_id_is_in_use_while_its_grammar_is_compiled() -> None:
    loop = a_random_engine("kimi")
    fine = a_mix("kimi")[0]
    transcript = said_by(loop, fine, fine)
    assert transcript.failed[fine.request_id].message == "this request id is already in use"
    assert not transcript.tokens


def test_a_model_without_a_vocabulary_serves_free_answers() -> None:
    loop = a_random_engine("kimi", models=(MODEL,))
    assert run_to_end(loop).tokens == {}
    transcript = said_by(loop, a_submit("r", stop_token_ids=()))
    assert len(transcript.tokens["r"]) == 8


def test_a_tenant_with_many_grammars_is_refused_more_and_others_are_not() -> None:
    loop = a_random_engine("kimi", max_waiting=200)
    fine = replace(a_mix("kimi")[0], max_tokens=1)
    mine = [replace(fine, request_id=f"mine {n}") for n in range(MAX_OF_TENANT + 3)]
    transcript = said_by(loop, *mine, replace(fine, request_id="other", tenant="other"))
    assert {failed.reason for failed in transcript.failed.values()} == {"capacity"}
    assert len(transcript.failed) == 3
    assert "other" in transcript.finished
