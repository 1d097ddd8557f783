"""What an edge notes of a sequence's way: the stages of `telemetry.stages` and the events of a trace."""

from __future__ import annotations

import anyio
import pytest

from support.flows import running
from support.part_nodes import PartNode, hand_over, pair
from support.plain_text import KIMI
from tenantry_runtime.core import FinishReason
from tenantry_runtime.errors import CacheIntegrityError, NodeLost
from tenantry_runtime.telemetry import Journey

STOP = FinishReason.STOP


def stages(journey: Journey) -> list[str]:
    return [stage.name for stage in journey.stages]


@pytest.mark.asyncio
async def test_a_hand_over_is_routed_twice_and_reserved_once() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        source, target = await hand_over(prefill, decode)
        # before the first token
        assert stages(flow.journey) == ["route", "route", "reserve"]
        assert flow.journey.first_token_s is None
        target.say("answer", STOP)
        source.delivered()
    journey = flow.journey
    assert stages(journey) == ["route", "route", "reserve"]
    assert [stage.attributes.get("tenantry.route.phase") for stage in journey.stages] == [
        "prefill",
        "decode",
        None,
    ]
    reserve = journey.stages[-1]
    assert reserve.attributes == {
        "tenantry.decode.member": f"decode/{KIMI.id}",
        "tenantry.reserve.pages": 0,
        "tenantry.reserve.present_pages": 0,
    }
    assert {phase: told.name for phase, told in journey.members.items()} == {
        "prefill": f"prefill/{KIMI.id}",
        "decode": f"decode/{KIMI.id}",
    }
    assert journey.first_token_s is not None
    assert not journey.happened


@pytest.mark.asyncio
async def test_a_preemption_is_an_event_with_the_tokens_so_far() -> None:
    prefill, decode = pair()
    async with running([prefill, decode]) as flow:
        _, target = await hand_over(prefill, decode)
        target.say("an")
        target.preempt()
        source, target = await hand_over(prefill, decode, 1)
        target.say("swer", STOP)
        source.delivered()
    [event] = flow.journey.happened
    assert (event.name, event.attributes) == ("tenantry.preempted", {"tenantry.output.tokens": 2})
    assert flow.journey.num_resubmitted == 1
    assert stages(flow.journey) == ["route", "route", "reserve"] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize("is_mismatch", [False, True])
async def test_a_retry_is_an_event_that_says_why_and_a_mismatch_is_remembered(
    is_mismatch: bool,
) -> None:
    prefills = [PartNode(f"p{number}", phases=["prefill"]) for number in range(2)]
    decode = PartNode("d", phases=["decode"])
    async with running([*prefills, decode]) as flow:
        await anyio.wait_all_tasks_blocked()
        [failing] = [node for node in prefills if node.opened]
        error = CacheIntegrityError("tag") if is_mismatch else NodeLost(KIMI.id)
        failing.opened[0].fail(error)
        [other] = [node for node in prefills if node is not failing]
        source, target = await hand_over(other, decode)
        target.say("answer", STOP)
        source.delivered()
    [event] = flow.journey.happened
    assert event.name == "tenantry.retry"
    assert event.attributes["error.type"] == type(error).__name__
    assert event.attributes["tenantry.retry.members"] == f"{failing.address}/{KIMI.id}"
    assert flow.journey.num_retries == 1
    assert flow.journey.has_mismatch == is_mismatch
