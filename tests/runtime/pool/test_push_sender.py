"""Whatever a receiver does, each slot comes back once and the step loop hears the end once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from support.fake_node import PATIENCE_S
from support.page_loop import an_end
from support.push_peer import a_page
from support.push_sending import CONTENT, Behave, a_sender, saying
from tenantry_runtime.pool import push_sender
from tenantry_runtime.pool.messages import HandoffEnd
from tenantry_runtime.pool.page_messages import (
    PushClose,
    PushConfirmed,
    PushLost,
    PushPage,
)
from tenantry_runtime.pool.push_frames import (
    PagesBegin,
    credit_frame,
    outcome_frame,
    read_pusher_frame,
)


async def silent(_context: Any) -> None:
    await anyio.sleep_forever()


async def generous(context: Any) -> None:
    """Take all, and admit after the end."""
    await context.write(credit_frame(100))
    num_pages = 0
    while True:
        frame = read_pusher_frame(await context.read())
        if isinstance(frame, PagesBegin):
            num_pages += len(frame.headers)
        elif isinstance(frame, HandoffEnd):
            assert frame == an_end(1, num_pages)
            await context.write(outcome_frame(None))
            return


async def leaving(context: Any) -> None:
    await context.write(credit_frame(1))
    await context.read()


@pytest.mark.asyncio
async def test_a_hand_off_that_is_admitted_is_confirmed_and_every_slot_is_back(
    tmp_path: Path,
) -> None:
    async with a_sender(tmp_path, generous) as at:
        at.begin()
        at.push(4)
        at.end(4)
        await at.heard.until(lambda _: bool(at.heard.all(PushConfirmed)))

        await at.until_slots(4)
        assert at.heard.all(PushLost) == []


@pytest.mark.asyncio
async def test_no_more_pages_are_sent_than_there_is_credit(tmp_path: Path) -> None:
    async with a_sender(tmp_path, saying(credit_frame(0), credit_frame(2))) as at:
        at.begin()
        at.push(4)
        await at.until_slots(2)
        await anyio.wait_all_tasks_blocked()

        assert at.sender.statistics().num_waiting_pages == 2


RECEIVERS: dict[str, tuple[Behave, str]] = {
    "refuses": (saying(outcome_frame("not here")), "not here"),
    "admits too early": (saying(credit_frame(9), outcome_frame(None)), "before its end"),
    "says garbage": (saying(b"\xff"), "another language"),
    "says nothing that it may": (saying(bytes([3, 0, 0, 0, 0])), "another language"),
    "leaves": (leaving, "ended the stream"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("behave", "problem"), RECEIVERS.values(), ids=RECEIVERS.keys())
async def test_a_receiver_that_ends_it_is_lost_with_the_reason(
    tmp_path: Path, behave: Behave, problem: str
) -> None:
    async with a_sender(tmp_path, behave) as at:
        at.begin()
        at.push(3)

        assert problem in await at.problem()
        await at.until_slots(3)
        # orders that were on their way
        at.sender.obey(PushPage(channel=1, slot=3, header=a_page(CONTENT, 3)))
        at.end(4)
        at.sender.obey(PushClose(channel=1))
        await at.until_slots(4)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("limit", "behave", "problem"),
    [
        ("OPEN_TIMEOUT_S", silent, "did not accept"),
        ("PROGRESS_TIMEOUT_S", saying(credit_frame(1)), "took no page"),
        ("OUTCOME_TIMEOUT_S", saying(credit_frame(9)), "did not confirm"),
    ],
)
async def test_a_receiver_that_falls_silent_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, behave: Behave, problem: str
) -> None:
    monkeypatch.setattr(push_sender, limit, 0.1)
    monkeypatch.setattr(push_sender, "WATCH_INTERVAL_S", 0.02)
    async with a_sender(tmp_path, behave) as at:
        at.begin()
        at.push(3)
        at.end(3)

        assert problem in await at.problem()
        await at.until_slots(3)


@pytest.mark.asyncio
@pytest.mark.parametrize("behave", [silent, saying(credit_frame(1)), saying(credit_frame(9))])
async def test_a_hand_off_that_is_closed_gives_its_slots_back_and_says_nothing(
    tmp_path: Path, behave: Behave
) -> None:
    async with a_sender(tmp_path, behave) as at:
        at.begin()
        at.push(3)
        await anyio.wait_all_tasks_blocked()
        at.sender.obey(PushClose(channel=1))

        await at.until_slots(3)
        with anyio.fail_after(PATIENCE_S):
            while at.sender.statistics().num_streams:
                await anyio.lowlevel.checkpoint()
        assert not at.heard.all(PushLost) and not at.heard.all(PushConfirmed)
