"""How often a request is tried, and whose fault it was."""

from __future__ import annotations

import random
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from support.flows import Flow, check_nothing_is_held, running
from support.part_nodes import Cluster, Opened, PartNode, then
from support.plain_text import KIMI
from tenantry_runtime.core import FinishReason
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import (
    CacheIntegrityError,
    CapacityExceeded,
    ContextExceeded,
    GenerationFailed,
    HandoffFailed,
    ReaderTooSlow,
    TenantryError,
)

STOP = FinishReason.STOP


@pytest.mark.asyncio
async def test_who_spoils_a_fifth_of_its_handoffs_is_found_out_and_no_other() -> None:
    draw = random.Random(3)
    cluster = Cluster(text="answer", num_prefill=2, num_decode=2)

    def spoil(opened: Opened) -> None:
        if draw.random() < 0.2:
            then(opened, [lambda: opened.fail(HandoffFailed("digest"))])
        else:
            cluster.decodes(opened)

    cluster.decode[0].behave = spoil
    nodes = Nodes(cluster.nodes)
    flows = [
        Flow(nodes=nodes, tenant=f"tenant-{number % 4}", request_id=str(number))
        for number in range(200)
    ]
    for start in range(0, len(flows), 8):
        async with anyio.create_task_group() as tasks:
            for flow in flows[start : start + 8]:
                tasks.start_soon(flow.run)

    assert all(flow.text == "answer" for flow in flows)
    assert sum(len(node.opened) for node in cluster.prefill) <= 1.2 * len(flows)
    assert len(cluster.decode[0].opened) < 100
    assert not any(member.breaker.is_open for member in nodes.router.members if member.node != "d0")


@pytest.mark.asyncio
async def test_clients_that_do_not_keep_up_are_no_fault_of_a_member() -> None:
    node = PartNode("node", behave=lambda opened: then(opened, [lambda: opened.say("a")]))
    nodes = Nodes([node])
    for number in range(20):
        async with running([node], nodes=nodes) as flow:
            await flow.received_text("a")
            node.opened[number].fail(ReaderTooSlow(20_000))
        assert isinstance(flow.error, ReaderTooSlow)

    assert nodes.can_serve(KIMI.id)


@pytest.mark.asyncio
async def test_there_is_one_retry_and_no_more() -> None:
    nodes = [PartNode(f"node-{number}") for number in range(3)]
    async with running(nodes) as flow:
        (await nodes[0].sequence()).fail(GenerationFailed("first"))
        (await nodes[1].sequence()).fail(GenerationFailed("second"))

    assert str(flow.error) == "generation failed: second"
    assert not nodes[2].opened


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "num_attempts"),
    [
        (lambda: GenerationFailed("internal"), 1),
        (lambda: CacheIntegrityError("a page"), 2),
        (lambda: HandoffFailed("a page"), 2),
    ],
)
async def test_alone_a_node_gets_another_chance_where_it_is_not_at_fault(
    error: Callable[[], TenantryError], num_attempts: int
) -> None:
    node = PartNode("node", behave=lambda opened: then(opened, [lambda: opened.fail(error())]))
    async with running([node]) as flow:
        pass

    assert len(node.opened) == num_attempts
    assert isinstance(flow.error, type(error()))


@pytest.mark.asyncio
async def test_a_full_node_is_passed_over_once() -> None:
    nodes = [PartNode("node-0"), PartNode("node-1")]
    async with running(nodes) as flow:
        (await nodes[0].sequence()).fail(CapacityExceeded())
        (await nodes[1].sequence()).say("a", STOP)
    assert flow.text == "a"

    nodes = [PartNode("node-0"), PartNode("node-1")]
    async with running(nodes) as flow:
        for node in nodes:
            (await node.sequence()).fail(CapacityExceeded())
    assert isinstance(flow.error, CapacityExceeded)


@pytest.mark.asyncio
async def test_a_prompt_that_is_too_long_is_not_tried_elsewhere() -> None:
    nodes = [PartNode("node-0"), PartNode("node-1")]
    async with running(nodes) as flow:
        (await nodes[0].sequence()).fail(ContextExceeded(2, 1))

    assert isinstance(flow.error, ContextExceeded)
    assert not nodes[1].opened


@pytest.mark.asyncio
async def test_a_member_that_fails_a_fifth_costs_a_fifth_of_the_requests_at_most() -> None:
    draw = random.Random(1)

    def serve(opened: Opened) -> None:
        if opened.node.address == "bad" and draw.random() < 0.2:
            then(opened, [lambda: opened.fail(CacheIntegrityError("injected"))])
        else:
            then(opened, [lambda: opened.say("answer", STOP)])

    sources = [PartNode(address, behave=serve) for address in ("bad", "good", "fine")]
    nodes = Nodes(sources)
    flows = [Flow(nodes=nodes, tenant=f"tenant-{number % 8}") for number in range(400)]
    for start in range(0, len(flows), 16):
        async with anyio.create_task_group() as tasks:
            for flow in flows[start : start + 16]:
                tasks.start_soon(flow.run)

    num_attempts = sum(len(node.opened) for node in sources)
    assert num_attempts <= 1.2 * len(flows)
    assert all(flow.text == "answer" or flow.error is not None for flow in flows)
    # it stops getting work long before that is a question of budgets
    assert len(sources[0].opened) < 60
    assert sum(flow.error is not None for flow in flows) <= 2
    check_nothing_is_held(nodes)


@pytest.mark.asyncio
async def test_a_cluster_where_everything_fails_is_not_asked_much_more_often() -> None:
    def fail(opened: Opened) -> None:
        then(opened, [lambda: opened.fail(GenerationFailed("internal"))])

    sources = [PartNode(f"node-{number}", behave=fail) for number in range(40)]
    nodes = Nodes(sources)
    flows = [Flow(nodes=nodes, tenant=f"tenant-{number % 8}") for number in range(100)]
    for flow in flows:
        await flow.run()

    assert all(flow.error is not None for flow in flows)
    assert sum(len(node.opened) for node in sources) <= 1.2 * len(flows)
