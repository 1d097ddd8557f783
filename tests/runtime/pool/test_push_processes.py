"""Pages from node to node, real processes: all arrive in order, and whatever breaks is said to both sides."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from support.fake_node import PATIENCE_S
from support.page_loop import FIRST_TOKEN, SENDING
from support.page_nodes import PageNode, Pair, a_pair
from tenantry_runtime.core import FinishReason
from tenantry_runtime.pool.messages import (
    Cancel,
    Delivered,
    Failed,
    NodeMessage,
    SequenceTokens,
    Step,
)

pytestmark = pytest.mark.cluster

MANY = range(1000, 1200)
"""More pages than there are slots."""


def first_token(name: str) -> list[SequenceTokens]:
    return [SequenceTokens(name, (FIRST_TOKEN,), FinishReason.LENGTH)]


async def until_confirmed(pair: Pair, name: str) -> None:
    step = await pair.decode.said()
    assert isinstance(step, Step), step
    assert step.sequences == first_token(name)
    assert await pair.prefill.said() == Delivered(request_id=name)


async def until_stuck(pair: Pair) -> None:
    """Wait until a hand-off has what one may take of the sender's slots, and no more."""
    with anyio.fail_after(PATIENCE_S):
        while (await pair.prefill.statistics()).num_free_pages[SENDING] < 32:
            pass


def kill(node: PageNode, which: str) -> None:
    os.kill(node.process.pid if which == "front" else node.loop_pid, signal.SIGKILL)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "page_bytes",
    # less than a frame, exactly one with its header somewhere near the limit, several
    [1, 5000, (1 << 20) - 30, 1 << 20, 3 * (1 << 20) + 5],
)
async def test_pages_of_any_size_arrive_whole_and_in_order(tmp_path: Path, page_bytes: int) -> None:
    async with a_pair(tmp_path, both={"page_bytes": page_bytes}) as pair:
        await pair.hand_over("a", range(20))
        await until_confirmed(pair, "a")
        await pair.prefill.until_clean()
        await pair.decode.until_clean()


@pytest.mark.asyncio
async def test_many_hand_offs_at_a_time_do_not_mix(tmp_path: Path) -> None:
    async with a_pair(tmp_path, both={"max_pages_per_turn": 3}) as pair:
        delivers = [
            await pair.begin(f"r{number}", range(number * 1000, number * 1000 + 70))
            for number in range(20)
        ]
        for deliver in delivers:
            await pair.prefill.edge.send(deliver)

        names: set[str] = set()
        while len(names) < 20:
            step = await pair.decode.said()
            assert isinstance(step, Step), step
            names |= {tokens.request_id for tokens in step.sequences}
        for _ in range(20):
            assert isinstance(await pair.prefill.said(), Delivered)
        await pair.prefill.until_clean()
        await pair.decode.until_clean()


async def _failures(pair: Pair) -> tuple[NodeMessage, NodeMessage]:
    return await pair.prefill.said(), await pair.decode.said()


@pytest.mark.asyncio
async def test_a_page_that_changed_on_its_way_fails_both_parts_and_no_other_sequence(
    tmp_path: Path,
) -> None:
    async with a_pair(tmp_path, prefill={"broken_page": 33}) as pair:
        await pair.hand_over("bad", range(50))

        failed, other = await _failures(pair)
        problem = "page 33 does not verify"
        assert failed == Failed(request_id="bad", reason="handoff", message=problem)
        assert other == failed
        await pair.hand_over("good", range(33))
        await until_confirmed(pair, "good")
        await pair.prefill.until_clean()
        await pair.decode.until_clean()


@pytest.mark.asyncio
async def test_a_hand_off_to_an_earlier_life_is_refused(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        deliver = await pair.begin("a", range(5))
        earlier = replace(deliver.target, incarnation=deliver.target.incarnation - 1)
        await pair.prefill.edge.send(replace(deliver, target=earlier))

        failed = await pair.prefill.said()
        assert isinstance(failed, Failed)
        assert f"incarnation {earlier.incarnation}" in failed.message
        assert str(deliver.target.incarnation) in failed.message


@pytest.mark.asyncio
async def test_members_that_do_not_agree_are_not_paired(tmp_path: Path) -> None:
    async with a_pair(
        tmp_path,
        prefill={"description": {"tokenizer_digest": "ours"}},
        decode={"description": {"tokenizer_digest": "theirs"}},
    ) as pair:
        await pair.hand_over("a", range(5))

        failed = await pair.prefill.said()
        assert isinstance(failed, Failed)
        assert "'ours' at the prefill member and 'theirs' at the decode member" in failed.message


@pytest.mark.asyncio
async def test_a_receiver_that_releases_nothing_stops_the_sender_and_no_memory_grows(
    tmp_path: Path,
) -> None:
    async with a_pair(tmp_path, decode={"hold_pages": True}) as pair:
        await pair.hand_over("stuck", range(500))
        await until_stuck(pair)

        # others have their own
        deliver = await pair.begin("other", range(3))
        nobody = replace(deliver, address=f"unix:{tmp_path / 'nobody.sock'}")
        await pair.prefill.edge.send(nobody)
        assert isinstance(await pair.prefill.said(), Failed)
        await pair.decode.edge.send(Cancel(request_id="other"))

        # it gets them back once it hears that nobody waits any more
        await pair.prefill.edge.send(Cancel(request_id="stuck"))
        await pair.prefill.until_clean()
        failed = await pair.decode.said()
        assert failed == Failed(request_id="stuck", reason="handoff", message="the source is lost")


@pytest.mark.asyncio
@pytest.mark.parametrize("which", ["front", "loop"])
async def test_a_sender_that_dies_mid_push_is_lost_to_the_receiver(
    tmp_path: Path, which: str
) -> None:
    async with a_pair(tmp_path, decode={"hold_pages": True}) as pair:
        await pair.hand_over("a", MANY)
        await until_stuck(pair)
        kill(pair.prefill, which)

        failed = await pair.decode.said()
        assert failed == Failed(request_id="a", reason="handoff", message="the source is lost")


@pytest.mark.asyncio
@pytest.mark.parametrize("which", ["front", "loop"])
async def test_a_receiver_that_dies_mid_push_is_lost_to_the_sender_which_gets_its_slots_back(
    tmp_path: Path, which: str
) -> None:
    async with a_pair(tmp_path, decode={"hold_pages": True}) as pair:
        await pair.hand_over("a", MANY)
        await until_stuck(pair)
        kill(pair.decode, which)

        failed = await pair.prefill.said()
        assert isinstance(failed, Failed)
        assert failed.reason == "handoff"
        await pair.prefill.until_clean()


@pytest.mark.asyncio
async def test_a_hand_off_to_nobody_is_lost(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        deliver = await pair.begin("a", range(5))
        await pair.prefill.edge.send(replace(deliver, address=f"unix:{tmp_path / 'nobody.sock'}"))

        failed = await pair.prefill.said()
        assert isinstance(failed, Failed)
        assert "UNAVAILABLE" in failed.message
        await pair.prefill.until_clean()


@pytest.mark.asyncio
async def test_a_hand_off_over_the_network_needs_certificates(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        deliver = await pair.begin("a", range(5))
        await pair.prefill.edge.send(replace(deliver, address="192.0.2.1:7000"))

        failed = await pair.prefill.said()
        assert isinstance(failed, Failed)
        assert "certificates" in failed.message


@pytest.mark.asyncio
async def test_a_receiver_that_stands_still_holds_up_nobody_else(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as pair:
        deliver = await pair.begin("a", MANY)
        pair.decode.process.send_signal(signal.SIGSTOP)
        try:
            await pair.prefill.edge.send(deliver)
            # the front and the loop answer all the while
            await pair.prefill.statistics()
            failed = await pair.prefill.said()
            assert isinstance(failed, Failed)
            assert failed.reason == "handoff"
            await pair.prefill.until_clean()
        finally:
            pair.decode.process.send_signal(signal.SIGCONT)


@pytest.mark.asyncio
async def test_a_canceled_hand_off_ends_at_both_sides_and_says_nothing(tmp_path: Path) -> None:
    async with a_pair(tmp_path, both={"step_s": 0.01, "max_pages_per_turn": 1}) as pair:
        await pair.hand_over("a", MANY)
        for node in (pair.prefill, pair.decode):
            await node.edge.send(Cancel(request_id="a"))

        await pair.prefill.until_clean()
        await pair.decode.until_clean()
        await pair.hand_over("a", range(10))
        await until_confirmed(pair, "a")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.asyncio
async def test_hand_offs_leave_no_files_open(tmp_path: Path) -> None:
    async with a_pair(tmp_path, prefill={"broken_page": 3}) as pair:
        pids = [
            pid for node in (pair.prefill, pair.decode) for pid in (node.process.pid, node.loop_pid)
        ]
        # the first opens the connection that is kept
        await pair.hand_over("first", range(3))
        await until_confirmed(pair, "first")
        await pair.decode.until_clean()
        before = [open_files(pid) for pid in pids]
        for number in range(10):
            await pair.hand_over(f"bad{number}", range(5))
            for message in await _failures(pair):
                assert isinstance(message, Failed)
            await pair.hand_over(f"good{number}", range(3))
            await until_confirmed(pair, f"good{number}")
        await pair.prefill.until_clean()
        with anyio.fail_after(PATIENCE_S):
            # a node may still be closing the connection of the question before
            while any(open_files(pid) > num for pid, num in zip(pids, before, strict=True)):
                await pair.decode.until_clean()


@pytest.mark.asyncio
@pytest.mark.slow
async def test_a_sender_that_stands_still_mid_push_is_lost_to_the_receiver(
    tmp_path: Path,
) -> None:
    async with a_pair(tmp_path, decode={"hold_pages": True}) as pair:
        await pair.hand_over("a", MANY)
        await until_stuck(pair)
        pair.prefill.process.send_signal(signal.SIGSTOP)
        try:
            failed = await pair.decode.said()
            assert failed == Failed(request_id="a", reason="handoff", message="the source is lost")
        finally:
            pair.prefill.process.send_signal(signal.SIGCONT)
