"""A sequence whose pages were needed for others goes on where it was."""

from __future__ import annotations

import pytest

from support.flows import PROMPT, running
from support.part_nodes import PartNode, hand_over, pair, then
from support.plain_text import KIMI
from tenantry_runtime.core import FinishReason
from tenantry_runtime.edge.sequence import MAX_FRUITLESS
from tenantry_runtime.errors import (
    CacheIntegrityError,
    CapacityExceeded,
    GenerationFailed,
    HandoffFailed,
)

STOP = FinishReason.STOP


@pytest.mark.asyncio
@pytest.mark.parametrize("num_before", range(6))
async def test_a_preempted_sequence_goes_on_wherever_it_was(num_before: int) -> None:
    prefill, decode = pair()
    answer = "answer"
    async with running([prefill, decode]) as flow:
        _, target = await hand_over(prefill, decode)
        for index, char in enumerate(answer[:num_before]):
            target.say(char, cached_tokens=0 if index else 64)
        target.preempt()

        source, target = await hand_over(prefill, decode, 1)
        for part in (source.submit, target.submit):
            assert part.token_ids == PROMPT + list(map(ord, answer[:num_before]))
            assert part.max_tokens == 100 - num_before
            assert part.sampling.seed == 1
        target.say(answer[num_before:], STOP, cached_tokens=128)
        source.delivered()

    assert (flow.text, flow.error) == (answer, None)
    # of the first attempt that said it
    assert flow.received[0].cached_tokens == (64 if num_before else 128)


@pytest.mark.asyncio
async def test_a_preempted_reception_is_nobodys_failure_whatever_its_sender_says() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        for number in range(3):
            source, target = await hand_over(prefill, decode, number)
            # both are there when the edge looks
            source.fail(HandoffFailed("preempted"))
            target.preempt()

        source, target = await hand_over(prefill, decode, 3)
        target.say("answer", STOP)
        source.delivered()

    assert (flow.text, flow.error) == ("answer", None)


@pytest.mark.asyncio
async def test_a_sequence_may_be_preempted_again_and_again_while_it_gets_on() -> None:
    node = PartNode("node")
    async with running([node]) as flow:
        for number in range(3 * MAX_FRUITLESS):
            opened = await node.sequence(number)
            opened.say("x")
            opened.preempt()
        (await node.sequence(3 * MAX_FRUITLESS)).say("!", STOP)

    assert flow.text == "x" * 3 * MAX_FRUITLESS + "!"


@pytest.mark.asyncio
async def test_a_sequence_that_does_not_get_on_is_given_up() -> None:
    node = PartNode("node", behave=lambda opened: then(opened, [opened.preempt]))
    async with running([node]) as flow:
        pass

    assert isinstance(flow.error, GenerationFailed)
    assert "preempted" in str(flow.error)
    assert len(node.opened) == MAX_FRUITLESS + 1


@pytest.mark.asyncio
async def test_a_preempted_sequence_waits_for_full_nodes() -> None:
    node = PartNode("node")
    async with running([node]) as flow:
        opened = await node.sequence(0)
        opened.say("a")
        opened.preempt()
        for number in range(1, MAX_FRUITLESS):
            (await node.sequence(number)).fail(CapacityExceeded())
        (await node.sequence(MAX_FRUITLESS)).say("b", STOP)

    assert flow.text == "ab"


@pytest.mark.asyncio
@pytest.mark.parametrize("said", ["", "an"])
async def test_who_would_rather_not_wait_waits_when_it_is_preempted(said: str) -> None:
    node = PartNode("node")
    async with running([node], may_wait=False, max_waiting=3) as flow:
        opened = await node.sequence(0)
        if said:
            opened.say(said)
        opened.preempt()
        (await node.sequence(1)).preempt()
        (await node.sequence(2)).say("swer", STOP)

    assert flow.text == said + "swer"
    first, *again = [(opened.submit.may_wait, opened.submit.max_waiting) for opened in node.opened]
    assert first == (False, 3)
    assert again == [(True, None)] * 2


@pytest.mark.asyncio
async def test_who_would_rather_not_wait_is_refused_by_the_last_node_that_is_asked() -> None:
    nodes = [
        PartNode(name, behave=lambda o: then(o, [lambda: o.fail(CapacityExceeded())]))
        for name in "ab"
    ]
    async with running(nodes, may_wait=False) as flow:
        pass

    assert isinstance(flow.error, CapacityExceeded)
    submits = [opened.submit for node in nodes for opened in node.opened]
    assert [submit.may_wait for submit in submits] == [False] * 2


@pytest.mark.asyncio
async def test_what_was_found_cached_at_first_is_what_counts() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        (await prefill.sequence()).start(cached_tokens=64)
        (await decode.sequence()).fail(CacheIntegrityError("a page"))

        # by now the prefill member has all of the prompt
        (await prefill.sequence(1)).start(cached_tokens=128)
        target = await decode.sequence(1)
        target.reserve()
        target.say("a", STOP, cached_tokens=128)

    assert flow.received[0].cached_tokens == 64
    assert flow.trail.headers() == {
        "x-tenantry-member": f"prefill=prefill/{KIMI.id} decode=decode/{KIMI.id}",
        "x-tenantry-cached-tokens": "64",
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("is_coming", [False, True])
async def test_a_prompt_in_the_background_that_gave_its_pages_back_is_computed_again(
    is_coming: bool,
) -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        if is_coming:
            source, _ = await hand_over(prefill, decode)
        else:
            source = await prefill.sequence(0)
            source.start()
        source.preempt()

        source = await prefill.sequence(1)
        source.start()
        target = await decode.sequence(1)
        assert source.submit.token_ids == PROMPT
        target.reserve()
        target.say("answer", STOP)
        source.delivered()

    assert (flow.text, flow.error) == ("answer", None)
