"""Grammars of requests at the edge: made off the event loop, refused by field, kept by tenant."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import msgspec
import pytest

from support.constrained import WEATHER, a_model, weather_call
from support.edges import RUN, State, an_edge
from support.requests import a_body
from support.text import ids_of
from support.token_source import FakeTokenSource
from tenantry_runtime.catalog import load_catalog
from tenantry_runtime.core import GenerateRequest, JsonFormat, Sampling, ToolChoice
from tenantry_runtime.edge.constrained import Grammars
from tenantry_runtime.edge.offer import Offer
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.text import Constraints, OutputState, Wanted

BAD = JsonFormat(schema={"type": "strin"})
ARRAY = JsonFormat(schema={"type": "array"})


def a_request(**fields: Any) -> GenerateRequest:
    return GenerateRequest(model="kimi", sampling=Sampling(seed=1), **fields)


async def made(grammars: Grammars, tenant: str = "acme", **fields: Any) -> str | None:
    request = a_request(**fields)
    constraint = await grammars.constraint(request, OutputState.CONTENT, tenant=tenant)
    return None if constraint is None else constraint.lark


class CountingConstraints(Constraints):
    """Counts what is not known yet."""

    num_made = 0

    def _made(self, wanted: Wanted) -> str:
        self.num_made += 1
        return super()._made(wanted)


@pytest.mark.asyncio
async def test_a_request_that_asks_for_no_form_has_no_grammar() -> None:
    grammars = Grammars(Constraints(a_model("kimi")))
    assert await made(grammars) is None
    assert await made(grammars, tools=(WEATHER,), tool_choice=ToolChoice(mode="none")) is None
    assert await made(grammars, tools=(WEATHER,)) is not None


@pytest.mark.asyncio
async def test_a_bad_schema_is_refused_by_its_field_each_time() -> None:
    grammars = Grammars(Constraints(a_model("kimi")))
    for _ in range(2):
        with pytest.raises(InvalidInput) as refused:
            await made(grammars, response_format=BAD)
        assert refused.value.field == "response_format.json_schema"


class StuckConstraints(Constraints):
    """Makes no grammar of arrays before it is told to."""

    def __init__(self) -> None:
        super().__init__(a_model("kimi"))
        self.may_go_on = threading.Event()

    def _made(self, wanted: Wanted) -> str:
        if wanted.format == ARRAY:
            self.may_go_on.wait()
        return super()._made(wanted)


@pytest.mark.asyncio
async def test_a_schema_that_takes_too_long_is_refused_while_others_go_on() -> None:
    constraints = StuckConstraints()
    grammars = Grammars(constraints, max_seconds=1.0)
    ended: list[str] = []

    async def slow() -> None:
        with pytest.raises(InvalidInput, match="more than 1 seconds") as refused:
            await made(grammars, "slow", response_format=ARRAY)
        assert refused.value.field == "response_format.json_schema"
        ended.append("slow")

    async def fast() -> None:
        for n in range(5):
            await made(grammars, f"fast {n}", response_format=JsonFormat())
        ended.append("fast")

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        group.start_soon(fast)
    constraints.may_go_on.set()
    assert ended == ["fast", "slow"]


@pytest.mark.asyncio
async def test_what_one_tenant_has_asked_for_is_not_known_to_another() -> None:
    constraints = CountingConstraints(a_model("kimi"))
    grammars = Grammars(constraints)
    for tenant, expected in (("acme", 1), ("acme", 1), ("evil", 2), ("acme", 2)):
        await made(grammars, tenant, response_format=JsonFormat())
        assert constraints.num_made == expected
    # the same bytes in another order of keys are another schema: they are written in that order
    for names in (["a", "b"], ["b", "a"]):
        schema = {"type": "object", "properties": {name: {"type": "null"} for name in names}}
        lark = await made(grammars, response_format=JsonFormat(schema=schema))
        assert lark is not None
        assert lark.index('"a"') < lark.index('"b"') or names == ["b", "a"]


@pytest.mark.asyncio
async def test_verdicts_are_bounded() -> None:
    constraints = CountingConstraints(a_model("kimi"))
    for n in range(40):
        constraints.grammar(
            Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema={"const": n})), "acme"
        )
    assert constraints.num_made == 40
    for n, is_known in ((39, True), (0, False)):
        before = constraints.num_made
        constraints.grammar(
            Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema={"const": n})), "acme"
        )
        assert (constraints.num_made == before) == is_known


@pytest.mark.asyncio
async def test_a_node_is_told_the_grammar_and_a_bad_schema_is_a_400_that_no_node_hears_of(
    state: State,
) -> None:
    entry = next(entry for entry in load_catalog().entries if "kimi" in entry.id)
    text = a_model("kimi")
    ids = ids_of(text, "</think>" + weather_call("kimi", city="Bern") + "<|im_end|>")
    node = FakeTokenSource(*[[token_id] for token_id in ids])
    offer = Offer(entry=entry, text=text, context_tokens=4096, grammars=Grammars(Constraints(text)))
    tool = {"type": "function", "function": msgspec.to_builtins(WEATHER)}
    bad = {"type": "function", "function": {"name": "f", "parameters": {"type": "strin"}}}
    async with an_edge(state, node, offers=[offer]) as edge, edge.client() as client:
        refused = await client.post(RUN, content=a_body(tools=[tool, bad]))
        assert refused.status_code == 400
        assert "tools/1/function/parameters" in refused.text
        assert not node.submits
        answered = await client.post(RUN, content=a_body(tools=[tool]))
        assert answered.status_code == 200
    [submit] = node.submits
    assert submit.constraint is not None
    assert "functions.weather:" in submit.constraint.lark
