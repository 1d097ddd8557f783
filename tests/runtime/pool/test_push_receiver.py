"""Whatever a pusher does, its slots come back once, the step loop hears of it once, and others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from support.page_loop import an_end
from support.push_peer import (
    LAYOUT,
    Pusher,
    Receiving,
    a_page,
    a_receiver,
    an_opening,
    opened,
)
from tenantry_runtime.pool import push_receiver
from tenantry_runtime.pool.messages import PageHeader
from tenantry_runtime.pool.page_messages import EndArrived, PagesArrived, PushAnswer, SourceGone
from tenantry_runtime.pool.push_frames import Kind, end_frame, open_frame, page_frames, ready_frame

CONTENT = bytes(range(200)) * 20


def the_pages(at: Receiving) -> list[tuple[int, PageHeader]]:
    """Return slots and what came in them."""
    return [page for came in at.heard.all(PagesArrived) for page in came.pages]


async def until_arrived(at: Receiving, num_pages: int) -> None:
    await at.heard.until(lambda _: len(the_pages(at)) == num_pages)


async def push_pages(at: Receiving, pusher: Pusher, num_pages: int) -> None:
    """Push pages and free each slot, as the step loop does."""
    await pusher.send(ready_frame(num_pages))
    for page in range(num_pages):
        await pusher.until_credit(page + 1)
        content = CONTENT[: 1000 + page]
        await pusher.send_page(a_page(content, page), content, num_ready=num_pages)
        await until_arrived(at, page + 1)
        slot, _ = the_pages(at)[page]
        assert at.pages.incoming(slot)[: len(content)] == content
        at.receiver.free([slot])


@pytest.mark.asyncio
async def test_a_hand_off_goes_through_and_leaves_nothing(tmp_path: Path) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await pusher.send(opened())
        await push_pages(at, pusher, 10)
        await pusher.send(end_frame(an_end(1, 10)))
        await at.heard.until(lambda _: bool(at.heard.all(EndArrived)))
        (end,) = at.heard.all(EndArrived)
        at.receiver.answer(PushAnswer(source=end.source, problem=None))

        assert await pusher.outcome() is None
        await at.loses(1)
        await at.until_all_free()


@pytest.mark.asyncio
async def test_no_more_pages_are_taken_than_slots_are_free(tmp_path: Path) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as first, at.pusher() as second:
        await first.send(opened(1))
        await second.send(opened(2))
        for pusher in (first, second):
            await pusher.send(ready_frame(100))
            await pusher.until_credit(2)
        for page in range(2):
            await first.send_page(a_page(CONTENT, page, 1), CONTENT, num_ready=100)
        await at.heard.until(lambda _: len(the_pages(at)) == 2)

        credits = at.receiver.statistics().credits
        assert credits is not None
        assert (credits.num_free, credits.num_promised) == (0, 2)
        with anyio.move_on_after(0.2):
            await first.until_credit(3)
            raise AssertionError("credit for a page that has no slot")


async def _opened(pusher: Pusher) -> None:
    await pusher.send(opened())
    await pusher.until_credit(0)


async def _promised(pusher: Pusher) -> None:
    await pusher.send(opened())
    await pusher.send(ready_frame(3))
    await pusher.until_credit(2)


async def _within_a_page(pusher: Pusher) -> None:
    await _promised(pusher)
    first, *_ = page_frames(3, [a_page(CONTENT)], [memoryview(CONTENT)])
    await pusher.send(first[:-100])


async def _after_a_page(pusher: Pusher) -> None:
    await _promised(pusher)
    await pusher.send_page(a_page(CONTENT), CONTENT)


async def _after_the_end(pusher: Pusher) -> None:
    await _after_a_page(pusher)
    await pusher.send(end_frame(an_end(1, 1)))


STATES = [_opened, _promised, _within_a_page, _after_a_page, _after_the_end]
Reach = Callable[[Pusher], Any]


@pytest.mark.asyncio
@pytest.mark.parametrize("reach", STATES)
async def test_a_stream_that_breaks_gives_its_slots_back_once(tmp_path: Path, reach: Reach) -> None:
    async with a_receiver(tmp_path) as at:
        async with at.pusher() as pusher:
            await reach(pusher)
            num_pages = int(reach in (_after_a_page, _after_the_end))
            await at.heard.until(lambda _: len(the_pages(at)) == num_pages)
            pusher.cancel()
            await at.loses(1)
        for slot, _ in the_pages(at):
            at.receiver.free([slot])

        await at.until_all_free()
        (gone,) = at.heard.all(SourceGone)
        assert gone.handoff == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("reach", STATES)
async def test_the_step_loop_may_refuse_at_any_time(tmp_path: Path, reach: Reach) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await reach(pusher)
        num_pages = int(reach in (_after_a_page, _after_the_end))
        await at.heard.until(lambda _: len(the_pages(at)) == num_pages)
        at.receiver.answer(PushAnswer(source=1, problem="no"))

        assert await pusher.outcome() == "no"
        for slot, _ in the_pages(at):
            at.receiver.free([slot])
        await at.until_all_free()


@pytest.mark.asyncio
async def test_pages_of_one_frame_are_told_together(tmp_path: Path) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await _promised(pusher)
        contents = [CONTENT, CONTENT[:1000]]
        headers = [a_page(content, page) for page, content in enumerate(contents)]
        for frame in page_frames(3, headers, [memoryview(content) for content in contents]):
            await pusher.send(frame)
        await until_arrived(at, 2)

        (came,) = at.heard.all(PagesArrived)
        assert [header for _, header in came.pages] == headers
        for (slot, _), content in zip(came.pages, contents, strict=True):
            assert at.pages.incoming(slot)[: len(content)] == content
        at.receiver.free([slot for slot, _ in came.pages])
        await pusher.until_credit(3)


@pytest.mark.asyncio
async def test_pages_that_were_whole_before_a_mistake_are_told_and_their_slots_come_back(
    tmp_path: Path,
) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await _promised(pusher)
        headers = [a_page(CONTENT, page) for page in range(3)]
        for frame in page_frames(3, headers, [memoryview(CONTENT)] * 3):
            await pusher.send(frame)

        assert "without credit" in (await pusher.outcome() or "")
        assert [header for _, header in the_pages(at)] == headers[:2]
        at.receiver.free([slot for slot, _ in the_pages(at)])
        await at.until_all_free()


MALFORMED: dict[str, tuple[Reach, list[bytes], str]] = {
    "garbage": (_promised, [b"\xff\xff"], "Kind"),
    "a second opening": (_opened, [opened()], "second"),
    "no credit": (
        _opened,
        list(page_frames(0, [a_page(CONTENT)], [memoryview(CONTENT)])),
        "without credit",
    ),
    "more credit than given": (
        _promised,
        [
            frame
            for page in range(LAYOUT.num_slots)
            for frame in page_frames(3, [a_page(CONTENT, page)], [memoryview(CONTENT)])
        ],
        "without credit",
    ),
    "another hand-off": (
        _promised,
        list(page_frames(3, [a_page(CONTENT, handoff=2)], [memoryview(CONTENT)])),
        "hand-off 2",
    ),
    "too large": (
        _promised,
        [next(page_frames(3, [a_page(bytes(9000))], [memoryview(bytes(100))]))],
        "9000 bytes",
    ),
    "bytes beyond the last page": (
        _promised,
        [b"".join([*page_frames(3, [a_page(CONTENT)], [memoryview(CONTENT)]), b"more"])],
        "4 bytes of no page",
    ),
    "a first page that is not whole": (
        _promised,
        list(
            page_frames(
                3, [a_page(CONTENT), a_page(CONTENT, 1)], [memoryview(b"cut"), memoryview(b"")]
            )
        ),
        "within another",
    ),
    "one page more than there is credit for": (
        _promised,
        list(
            page_frames(3, [a_page(CONTENT, page) for page in range(3)], [memoryview(CONTENT)] * 3)
        ),
        "without credit",
    ),
    "no bytes": (_promised, list(page_frames(3, [a_page(b"")], [memoryview(b"")])), "0 bytes"),
    "more bytes than said": (_within_a_page, [bytes([Kind.MORE]) + bytes(101)], "4001 bytes"),
    "bytes of no page": (_promised, [bytes([Kind.MORE]) + bytes(10)], "no page"),
    "a page within a page": (
        _within_a_page,
        list(page_frames(3, [a_page(CONTENT, 1)], [memoryview(CONTENT)])),
        "within another",
    ),
    "an end within a page": (_within_a_page, [end_frame(an_end(1, 1))], "within a page"),
    "the end of another": (_after_a_page, [end_frame(an_end(5, 1))], "hand-off 5"),
    "a frame after the end": (_after_the_end, [ready_frame(9)], "after"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("reach", "frames", "problem"), MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_pusher_that_breaks_the_rules_is_told_so_and_ended(
    tmp_path: Path, reach: Reach, frames: list[bytes], problem: str
) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher, at.pusher() as other:
        await other.send(opened(8))
        await reach(pusher)
        for frame in frames:
            await pusher.send(frame)

        said = await pusher.outcome()
        assert said is not None
        assert problem in said
        await at.loses(1)
        for slot, _ in the_pages(at):
            at.receiver.free([slot])
        # others go on
        await other.send(ready_frame(1))
        await other.until_credit(1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"incarnation": 76}, "incarnation 76 of the node, this is 77"),
        ({"model": "other"}, "'other'"),
        ({"cache_format": "bf16"}, "'bf16', the decode member's cache is 'fp8'"),
    ],
)
async def test_a_hand_off_that_is_not_for_this_node_is_refused(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await pusher.send(opened(**fields))

        said = await pusher.outcome()
        assert said is not None
        assert problem in said
        assert at.heard.commands == []


@pytest.mark.asyncio
async def test_a_pusher_of_another_model_is_refused_with_what_differs(tmp_path: Path) -> None:
    opening = an_opening()
    other = replace(opening, source=replace(opening.source, template_digest="c9"))
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await pusher.send(open_frame(other))

        assert "template_digest is 'c9'" in str(await pusher.outcome())


@pytest.mark.asyncio
async def test_one_hand_off_comes_on_one_stream(tmp_path: Path) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as first, at.pusher() as second:
        await first.send(opened(1))
        await first.until_credit(0)
        await second.send(opened(1))

        assert "coming in already" in str(await second.outcome())
        await first.send(ready_frame(1))
        await first.until_credit(1)


@pytest.mark.asyncio
async def test_a_node_without_slots_takes_no_pages(tmp_path: Path) -> None:
    async with a_receiver(tmp_path, has_pages=False) as at, at.pusher() as pusher:
        await pusher.send(opened())

        assert "no member" in str(await pusher.outcome())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("limit", "reach"),
    [
        ("OPEN_TIMEOUT_S", None),
        ("PAGE_TIMEOUT_S", _promised),
        ("PAGE_TIMEOUT_S", _within_a_page),
        ("IDLE_TIMEOUT_S", _opened),
    ],
)
async def test_a_pusher_that_falls_silent_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, reach: Reach | None
) -> None:
    monkeypatch.setattr(push_receiver, limit, 0.1)
    monkeypatch.setattr(push_receiver, "WATCH_INTERVAL_S", 0.02)
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        if reach is not None:
            await reach(pusher)

        assert "0.1 s" in str(await pusher.outcome())
        await at.until_all_free()


@pytest.mark.asyncio
async def test_only_so_many_streams_are_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_receiver, "MAX_STREAMS", 1)
    async with a_receiver(tmp_path) as at, at.pusher() as first, at.pusher() as second:
        await first.send(opened(1))
        await first.until_credit(0)
        await second.send(opened(2))

        assert "1 hand-offs" in str(await second.outcome())
