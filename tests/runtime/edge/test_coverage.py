"""`/ai/coverage`: what nodes say of their checks, and what counts as said."""

from __future__ import annotations

from typing import Any

import pytest

from support.edges import ACCOUNT, OTHER_ACCOUNT, State, an_edge
from support.plain_text import KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.core import Phase
from tenantry_runtime.pool.messages import OpCoverage

COVERAGE = f"/client/v4/accounts/{ACCOUNT}/ai/coverage"


PREFILL: tuple[Phase, str] = ("prefill", "append")
DECODE: tuple[Phase, str] = ("decode", "read")


def an_op(op: str, *, is_on: bool = True) -> OpCoverage:
    return OpCoverage(op=op, format="bf16", device="cpu", is_on=is_on)


async def report(state: State, node: FakeTokenSource) -> dict[str, Any]:
    async with an_edge(state, node) as edge:
        response = await edge.get(COVERAGE)
    assert response.status_code == 200
    result: dict[str, Any] = response.json()["result"]
    return result


@pytest.mark.asyncio
async def test_every_op_of_every_member_is_a_line(state: State) -> None:
    node = FakeTokenSource(models=(KIMI.id,), coverage=[an_op("append"), an_op("read")])
    told = await report(state, node)
    assert (told["all_checked"], told["nodes_without_answer"]) == (True, 0)
    assert told["ops"][1] == {
        "node": 0,
        "model": KIMI.id,
        "phase": "prefill",
        "op": "read",
        "format": "bf16",
        "device": "cpu",
        "checked": True,
    }
    assert [op["phase"] for op in told["ops"]] == ["prefill", "prefill", "decode", "decode"]


@pytest.mark.asyncio
async def test_one_op_without_a_check_is_not_all(state: State) -> None:
    node = FakeTokenSource(coverage=[an_op("append"), an_op("read", is_on=False)])
    assert (await report(state, node))["all_checked"] is False


@pytest.mark.asyncio
async def test_a_member_that_says_nothing_checks_nothing(state: State) -> None:
    told = await report(state, FakeTokenSource(models=(KIMI.id,)))
    assert told["all_checked"] is False
    assert {(op["op"], op["checked"]) for op in told["ops"]} == {("every op", False)}


@pytest.mark.asyncio
async def test_members_of_several_nodes_are_told_apart(state: State) -> None:
    nodes = [
        FakeTokenSource(models=(KIMI.id,), phases=[phase], coverage=[an_op(op)])
        for phase, op in (PREFILL, DECODE)
    ]
    async with an_edge(state, nodes) as edge:
        told = (await edge.get(COVERAGE)).json()["result"]
    assert told["all_checked"] is True
    assert [(op["node"], op["phase"], op["op"]) for op in told["ops"]] == [
        (0, *PREFILL),
        (1, *DECODE),
    ]


@pytest.mark.asyncio
async def test_a_node_that_is_not_there_is_counted(state: State) -> None:
    node = FakeTokenSource(coverage=[an_op("append")])
    node.is_healthy = False
    told = await report(state, node)
    assert told == {"all_checked": False, "nodes_without_answer": 1, "ops": []}


@pytest.mark.asyncio
async def test_a_stranger_is_told_nothing(state: State) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        response = await edge.get(COVERAGE.replace(ACCOUNT, OTHER_ACCOUNT))
    assert response.status_code == 403
