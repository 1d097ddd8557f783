"""A request over nodes of one phase each: every message, every loss, every order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from support.flows import PROMPT, Flow, check_nothing_is_held, running
from support.incidents import Told
from support.part_nodes import Cluster, Opened, PartNode, hand_over, pair
from support.plain_text import KIMI
from tenantry_runtime.core import FinishReason
from tenantry_runtime.edge.incidents import NodeIncidents
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import (
    CacheIntegrityError,
    GenerationFailed,
    HandoffFailed,
    NodeLost,
    NodeUnavailable,
    TenantryError,
)
from tenantry_runtime.tenancy import IncidentKind

STOP = FinishReason.STOP


def lost() -> NodeLost:
    return NodeLost(KIMI.id)


@pytest.mark.asyncio
async def test_the_messages_come_in_their_order() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        source = await prefill.sequence()
        assert source.submit.part == "prefill"
        assert source.submit.token_ids == PROMPT
        await anyio.wait_all_tasks_blocked()
        assert not decode.opened, "nothing is reserved for a prompt that waits in a queue"

        source.start()
        target = await decode.sequence()
        assert target.submit.part == "decode"
        assert not source.delivers

        target.reserve(handoff=7)
        await anyio.wait_all_tasks_blocked()
        [deliver] = source.delivers
        assert (deliver.address, deliver.target.handoff) == ("decode", 7)

        target.say("a")
        source.delivered()
        target.say("b", STOP)

    assert flow.text == "ab"
    assert not source.is_left and not target.is_left


@pytest.mark.asyncio
async def test_a_node_is_reached_by_others_as_it_says() -> None:
    prefill, decode = pair(reached_at="10.0.0.2:7000")
    async with running([prefill, decode]):
        source, target = await hand_over(prefill, decode)
        target.say("a", STOP)

    assert source.delivers[0].address == "10.0.0.2:7000"


@pytest.mark.asyncio
async def test_members_that_share_pages_run_it_whole() -> None:
    node = PartNode("node")
    async with running([node]) as flow:
        opened = await node.sequence()
        assert opened.submit.part == "whole"
        opened.say("ab", STOP)

    assert flow.text == "ab"
    assert len(node.opened) == 1


@pytest.mark.asyncio
async def test_what_is_said_twice_counts_once() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        source = await prefill.sequence()
        for _ in range(2):
            source.start()
        target = await decode.sequence()
        target.reserve(handoff=1)
        target.reserve(handoff=2)
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):
            source.delivered()
        target.say("ab", STOP)

    assert [deliver.target.handoff for deliver in source.delivers] == [1]
    assert len(decode.opened) == 1
    assert flow.text == "ab"


@pytest.mark.asyncio
async def test_a_prefill_member_may_be_done_before_or_after_the_first_token() -> None:
    for is_first in (True, False):
        prefill, decode = pair()
        async with running([prefill, decode]) as flow:
            source, target = await hand_over(prefill, decode)
            if is_first:
                source.delivered()
                await anyio.wait_all_tasks_blocked()
            target.say("a")
            await flow.received_text("a")
            if not is_first:
                source.delivered()
            target.say("b", STOP)
        assert flow.text == "ab"
        assert not source.is_left


@pytest.mark.asyncio
async def test_what_another_node_takes_over_is_counted_with_the_loss() -> None:
    told = Told()
    incidents = NodeIncidents(told, edge="here:1")
    first, other = PartNode("first"), PartNode("other")
    nodes = Nodes([first, other], incidents=incidents)
    async with running([first, other], nodes=nodes) as flow:
        await anyio.wait_all_tasks_blocked()
        [victim] = [node for node in (first, other) if node.opened]
        [opened] = victim.opened
        incidents.lost(victim.address, "gone", [opened.submit])
        victim.die(lost)
        await anyio.wait_all_tasks_blocked()
        [again] = [each for node in (first, other) for each in node.opened if not each.is_over]
        again.say("ab", STOP)

    assert (flow.text, flow.error) == ("ab", None)
    [record] = told.of(IncidentKind.NODE_LOST)
    assert (record.node, record.facts) == (victim.address, {"unfinished": 1, "carried": 1})


@pytest.mark.asyncio
async def test_after_the_first_token_the_prefill_member_may_be_lost() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        _, target = await hand_over(prefill, decode)
        target.say("a")
        await flow.received_text("a")
        prefill.die(lost)
        target.say("b", STOP)

    assert (flow.text, flow.error) == ("ab", None)


# how far a sequence has come on its first members when one of them fails
async def queued(prefill: PartNode, decode: PartNode) -> None:
    await prefill.sequence()


async def started(prefill: PartNode, decode: PartNode) -> None:
    (await prefill.sequence()).start()
    await decode.sequence()


async def delivering(prefill: PartNode, decode: PartNode) -> None:
    await hand_over(prefill, decode)


async def delivered(prefill: PartNode, decode: PartNode) -> None:
    source, _ = await hand_over(prefill, decode)
    source.delivered()
    await anyio.wait_all_tasks_blocked()


Stage = Callable[[PartNode, PartNode], Awaitable[None]]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error",
    [lost, lambda: CacheIntegrityError("tag"), lambda: GenerationFailed("internal: x")],
    ids=["lost", "cache_integrity", "internal"],
)
@pytest.mark.parametrize(
    ("stage", "fails"),
    [
        (queued, "prefill"),
        (started, "prefill"),
        (delivering, "prefill"),
        (started, "decode"),
        (delivering, "decode"),
        (delivered, "decode"),
    ],
)
async def test_before_the_first_token_another_member_takes_over(
    stage: Stage, fails: str, error: Callable[[], TenantryError]
) -> None:
    prefills = [PartNode(f"p{number}", phases=["prefill"]) for number in range(2)]
    decodes = [PartNode(f"d{number}", phases=["decode"]) for number in range(2)]
    async with running([*prefills, *decodes]) as flow:
        await anyio.wait_all_tasks_blocked()
        [first_prefill] = [node for node in prefills if node.opened]
        first_decode = decodes[1]
        await stage(first_prefill, first_decode)
        failing = first_prefill if fails == "prefill" else first_decode
        [opened] = failing.opened
        opened.fail(error())

        await anyio.wait_all_tasks_blocked()
        again = [
            opened for node in (*prefills, *decodes) for opened in node.opened if not opened.is_over
        ]
        [source] = again
        assert source.submit.part == "prefill"
        if fails == "prefill":
            assert source.node is not first_prefill
        source.start()
        await anyio.wait_all_tasks_blocked()
        [target] = [opened for node in decodes for opened in node.opened if not opened.is_over]
        if fails == "decode":
            assert target.node is not first_decode
        target.reserve()
        await anyio.wait_all_tasks_blocked()
        assert len(source.delivers) == 1
        target.say("answer", STOP)
        source.delivered()

    assert (flow.text, flow.error) == ("answer", None)
    assert all(opened.is_over for node in (*prefills, *decodes) for opened in node.opened)


@pytest.mark.asyncio
@pytest.mark.parametrize("teller", [0, 1], ids=["prefill", "decode"])
@pytest.mark.parametrize("num_decode", [1, 2])
async def test_after_a_failed_handoff_both_sides_are_avoided_where_there_are_others(
    teller: int, num_decode: int
) -> None:
    prefills = [PartNode(f"p{number}", phases=["prefill"]) for number in range(2)]
    decodes = [PartNode(f"d{number}", phases=["decode"]) for number in range(num_decode)]
    async with running([*prefills, *decodes]) as flow:
        await anyio.wait_all_tasks_blocked()
        both = await hand_over(prefills[0], decodes[-1])
        both[teller].fail(HandoffFailed("the peer is gone"))

        source = await prefills[1].sequence()
        source.start()
        target = await decodes[0].sequence(2 - num_decode)
        target.reserve()
        target.say("a", STOP)

    assert flow.error is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error", [lost(), HandoffFailed("x"), CacheIntegrityError("x"), GenerationFailed("internal")]
)
async def test_after_the_first_token_the_error_comes_out(error: TenantryError) -> None:
    prefill, decode = pair()
    spare = PartNode("another", phases=["decode"])
    async with running([prefill, decode, spare]) as flow:
        source, target = await hand_over(prefill, decode)
        target.say("a")
        await flow.received_text("a")
        target.fail(error)

    assert flow.text == "a"
    assert flow.error is error
    assert source.is_over and not spare.opened


@pytest.mark.asyncio
async def test_without_a_decode_member_by_then_the_request_fails_and_lets_go() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        source = await prefill.sequence()
        decode.is_healthy = False
        source.start()

    assert isinstance(flow.error, NodeUnavailable)
    assert source.is_left


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("trouble", "trouble_at"),
    [
        (None, 0),
        (lambda opened: opened.fail(HandoffFailed("x")), 0),
        (lambda opened: opened.preempt(), 0),
        (lambda opened: opened.preempt(), 4),
    ],
    ids=["no trouble", "retry", "preempted early", "preempted late"],
)
async def test_cancelling_at_any_await_tells_every_node(
    trouble: Callable[[Opened], None] | None, trouble_at: int
) -> None:
    num_whole = 0
    for num_turns in range(100):
        cluster = Cluster(
            text="an answer",
            num_prefill=2,
            num_decode=2,
            trouble=trouble,
            trouble_at=trouble_at,
        )
        nodes = Nodes(cluster.nodes)
        flow = Flow(nodes=nodes)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flow.run)
            for _ in range(num_turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

        assert all(opened.is_over for opened in cluster.opened), num_turns
        assert flow.error is None
        check_nothing_is_held(nodes)
        assert cluster.text.startswith(flow.text)
        num_whole += flow.text == cluster.text
    assert 0 < num_whole < 100, "the turns must reach past the end"


@pytest.mark.asyncio
async def test_whatever_comes_after_the_edge_has_left_changes_nothing() -> None:
    prefill, decode = pair()
    nodes = Nodes([prefill, decode])
    flow = Flow(nodes=nodes)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flow.run)
        source = await prefill.sequence()
        source.start()
        target = await decode.sequence()
        tasks.cancel_scope.cancel()
    target.reserve()
    target.say("late", STOP)
    source.delivered()
    await anyio.wait_all_tasks_blocked()

    assert source.is_left and target.is_left
    assert not source.delivers and not flow.received
