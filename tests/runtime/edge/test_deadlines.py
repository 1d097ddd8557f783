"""How much time nodes are told that they have to the first token."""

from __future__ import annotations

import anyio
import pytest

from support.edges import State, an_edge
from support.flows import running
from support.part_nodes import PartNode, hand_over, pair, then
from support.plain_text import END
from support.token_source import FakeTokenSource
from tenantry_runtime.core import FinishReason
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import GenerationFailed, RequestTimeout

STOP = FinishReason.STOP
LIMITS = Limits(request_timeout_s=20.0)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_node_is_told_what_is_left_of_the_requests_own_time(
    state: State, stream: bool
) -> None:
    node = FakeTokenSource("a" + END)
    async with an_edge(state, node, limits=LIMITS) as edge:
        response = await edge.run(stream=stream)

    assert response.status_code == 200
    within_ms = node.submits[0].first_token_within_ms
    assert within_ms is not None and 0 < within_ms <= 20_000


@pytest.mark.asyncio
async def test_each_part_is_told_what_is_left_when_it_is_sent() -> None:
    prefill, decode = pair()
    with anyio.fail_after(20):
        async with running([prefill, decode]) as flow:
            source = await prefill.sequence()
            # the clock of the event loop must have moved on
            start_s = anyio.current_time()
            while anyio.current_time() < start_s + 0.002:
                await anyio.lowlevel.checkpoint()
            _, target = await hand_over(prefill, decode)
            target.say("a", STOP)
        assert flow.text == "a"

    first, second = (opened.submit.first_token_within_ms for opened in (source, decode.opened[0]))
    assert first is not None and second is not None
    assert second < first <= 20_000


@pytest.mark.asyncio
async def test_without_a_deadline_a_node_is_told_of_none() -> None:
    node = PartNode("node", behave=lambda opened: then(opened, [lambda: opened.say("a", STOP)]))
    async with running([node]):
        pass

    assert node.opened[0].submit.first_token_within_ms is None


@pytest.mark.asyncio
async def test_a_stream_that_has_begun_may_take_any_time_when_it_is_resumed(state: State) -> None:
    node = PartNode("node")

    def behave(opened: object) -> None:
        sequence = node.opened[-1]
        if len(node.opened) == 1:
            then(sequence, [lambda: sequence.say("a"), lambda: None, sequence.preempt])
        else:
            then(sequence, [lambda: sequence.say(END, STOP)])

    node.behave = behave
    async with an_edge(state, node, limits=LIMITS) as edge:
        response = await edge.run(prompt="hi", stream=True)

    assert "[DONE]" in response.text
    assert [opened.submit.first_token_within_ms is None for opened in node.opened] == [False, True]


@pytest.mark.asyncio
async def test_a_request_whose_time_is_over_at_a_node_is_not_tried_again() -> None:
    nodes = [PartNode("one"), PartNode("two")]
    async with running(nodes) as flow:
        (await nodes[0].sequence()).fail(RequestTimeout())

    assert isinstance(flow.error, RequestTimeout)
    assert not nodes[1].opened


@pytest.mark.asyncio
async def test_time_that_is_over_is_no_members_fault() -> None:
    node = PartNode("node")
    nodes = Nodes([node])
    for number in range(20):
        async with running([node], nodes=nodes):
            (await node.sequence(number)).fail(RequestTimeout())

    assert not any(member.breaker.is_open for member in nodes.router.members)


@pytest.mark.asyncio
async def test_a_retry_has_no_more_time_than_is_left() -> None:
    nodes = [PartNode("one"), PartNode("two")]
    with anyio.fail_after(20):
        async with running(nodes) as flow:
            (await nodes[0].sequence()).fail(GenerationFailed("fault"))
            (await nodes[1].sequence()).say("a", STOP)
        assert flow.text == "a"

    first, second = (node.opened[0].submit.first_token_within_ms for node in nodes)
    assert first is not None and second is not None
    assert second <= first
