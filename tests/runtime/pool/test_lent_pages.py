"""A receiver on the same machine reads pages where they lie; one that cannot gets their bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from support import push_peer
from support.page_loop import an_end
from support.push_peer import LAYOUT, Pusher, Receiving, a_page, a_receiver, an_opening
from support.push_sending import CONTENT, a_sender, saying
from tenantry_runtime.pool import push_sender
from tenantry_runtime.pool.frames import MalformedFrame
from tenantry_runtime.pool.lent_pages import MAX_KEPT, Lenders, lend
from tenantry_runtime.pool.messages import HandoffEnd, LentMemory, PageHeader, PushOpen
from tenantry_runtime.pool.page_messages import PagesArrived, PushClose, PushConfirmed, SlotsSent
from tenantry_runtime.pool.push_frames import (
    MAX_LENT,
    MAX_LENT_BYTES,
    Credit,
    PagesLent,
    credit_frame,
    lent_frame,
    num_lent_together,
    open_frame,
    outcome_frame,
    read_pusher_frame,
    read_receiver_frame,
    ready_frame,
)
from tenantry_runtime.pool.shared_pages import SharedPages, create_pages_file, set_size

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")


class Lent:
    """A pusher's slots, and how it names them."""

    def __init__(self) -> None:
        self.fd = create_pages_file()
        set_size(self.fd, LAYOUT)
        self.pages = SharedPages(self.fd, LAYOUT)
        memory = lend(self.fd, LAYOUT)
        assert memory is not None
        self.memory = memory

    def put(self, slot: int, content: bytes) -> None:
        self.pages.outgoing(slot)[: len(content)] = content


@pytest.fixture
def lent() -> Iterator[Lent]:
    made = Lent()
    yield made
    os.close(made.fd)


async def said_credit(pusher: Pusher) -> Credit:
    said = await pusher.read()
    assert isinstance(said, Credit), said
    return said


async def introduce(pusher: Pusher, memory: LentMemory) -> Credit:
    """Open a hand-off; return the credit for its first pages."""
    await pusher.send(open_frame(replace(an_opening(), memory=memory)))
    first = await said_credit(pusher)
    assert first.num_pages == 0
    await pusher.send(ready_frame(2))
    return await said_credit(pusher)


def arrived(at: Receiving) -> list[tuple[int, PageHeader]]:
    return [page for came in at.heard.all(PagesArrived) for page in came.pages]


@pytest.mark.asyncio
async def test_pages_are_read_out_of_the_pushers_memory_which_hears_when(
    tmp_path: Path, lent: Lent
) -> None:
    contents = [bytes([n + 1]) * (5000 + n) for n in range(2)]
    headers = [a_page(content, page) for page, content in enumerate(contents)]
    lent.put(3, contents[0])
    lent.put(1, contents[1])
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        assert await introduce(pusher, lent.memory) == Credit(2, 0)
        await pusher.send(lent_frame(2, headers, [3, 1]))
        assert await said_credit(pusher) == Credit(2, 2)
        # from here on the slots are the pusher's again
        lent.put(3, b"\xff" * 8000)
        lent.put(1, b"\xff" * 8000)

        assert [header for _, header in arrived(at)] == headers
        for (slot, _), content in zip(arrived(at), contents, strict=True):
            assert at.pages.incoming(slot)[: len(content)] == content


LENDER = """
import sys

import msgspec

from support.push_peer import LAYOUT
from tenantry_runtime.pool.lent_pages import lend
from tenantry_runtime.pool.shared_pages import SharedPages, create_pages_file, set_size

fd = create_pages_file()
set_size(fd, LAYOUT)
SharedPages(fd, LAYOUT).outgoing(2)[:9] = b"elsewhere"
print(msgspec.json.encode(lend(fd, LAYOUT)).decode(), flush=True)
sys.stdin.read()
"""


@pytest.mark.asyncio
async def test_what_a_process_has_lent_can_be_read_when_it_is_gone(tmp_path: Path) -> None:
    tests = Path(push_peer.__file__).parents[1]
    async with await anyio.open_process(
        [sys.executable, "-c", LENDER], env={**os.environ, "PYTHONPATH": str(tests)}
    ) as lender:
        assert lender.stdin is not None and lender.stdout is not None
        memory = msgspec.json.decode(await lender.stdout.receive(), type=LentMemory)
        async with a_receiver(tmp_path) as at, at.pusher() as pusher:
            assert await introduce(pusher, memory) == Credit(2, 0)
            await lender.stdin.aclose()
            await lender.wait()
            await pusher.send(lent_frame(2, [a_page(bytes(9))], [2]))

            assert await said_credit(pusher) == Credit(2, 1)
            ((slot, _),) = arrived(at)
            assert bytes(at.pages.incoming(slot)[:9]) == b"elsewhere"


def _unsealed(lent: Lent) -> LentMemory:
    fd = os.dup(os.memfd_create("unsealed"))
    os.ftruncate(fd, LAYOUT.num_bytes)
    file = os.fstat(fd)
    return replace(lent.memory, fd=fd, device=file.st_dev, inode=file.st_ino)


def _a_pipe(lent: Lent) -> LentMemory:
    fd, _ = os.pipe()
    file = os.fstat(fd)
    return replace(lent.memory, fd=fd, device=file.st_dev, inode=file.st_ino)


NO_MEMORY: dict[str, Callable[[Lent], LentMemory]] = {
    "another file": lambda lent: replace(lent.memory, inode=lent.memory.inode + 1),
    "another device": lambda lent: replace(lent.memory, device=lent.memory.device + 1),
    "no such process": lambda lent: replace(lent.memory, pid=1 << 30),
    "a process of nobody": lambda lent: replace(lent.memory, pid=-1),
    "no such file": lambda lent: replace(lent.memory, fd=1 << 20),
    "more slots than it has": lambda lent: replace(lent.memory, num_slots=5),
    "no slots": lambda lent: replace(lent.memory, num_slots=0),
    "slots of no size": lambda lent: replace(lent.memory, slot_bytes=-8192, num_slots=-4),
    "a file that may shrink": _unsealed,
    "a pipe": _a_pipe,
}


@pytest.mark.asyncio
@pytest.mark.parametrize("memory", NO_MEMORY.values(), ids=NO_MEMORY.keys())
async def test_memory_that_cannot_be_read_is_not_accepted_and_bytes_are(
    tmp_path: Path, lent: Lent, memory: Callable[[Lent], LentMemory]
) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        assert await introduce(pusher, memory(lent)) == Credit(2, None)
        await pusher.send_page(a_page(CONTENT), CONTENT)
        await at.heard.until(lambda _: len(arrived(at)) == 1)
        await pusher.send(lent_frame(2, [a_page(CONTENT, 1)], [0]))

        assert "not read here" in str(await pusher.outcome())


@pytest.mark.asyncio
async def test_a_peer_on_a_network_lends_nothing(tmp_path: Path, lent: Lent) -> None:
    async with a_receiver(tmp_path, is_local=False) as at, at.pusher() as pusher:
        assert await introduce(pusher, lent.memory) == Credit(2, None)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("header", "slot", "problem"),
    [
        (a_page(CONTENT), LAYOUT.num_slots, "slot 4, which was not lent"),
        (a_page(bytes(LAYOUT.slot_bytes + 1)), 0, "8193 bytes"),
        (a_page(CONTENT, handoff=2), 0, "hand-off 2"),
    ],
)
async def test_a_page_that_is_not_in_a_lent_slot_ends_the_hand_off(
    tmp_path: Path, lent: Lent, header: PageHeader, slot: int, problem: str
) -> None:
    async with a_receiver(tmp_path) as at, at.pusher() as pusher:
        await introduce(pusher, lent.memory)
        await pusher.send(lent_frame(2, [a_page(CONTENT), header], [0, slot]))

        assert problem in str(await pusher.outcome())
        # the page before it was whole
        at.receiver.free([slot for slot, _ in arrived(at)])
        await at.until_all_free()


def test_only_so_many_lenders_are_kept(lent: Lent) -> None:
    others = [Lent() for _ in range(MAX_KEPT)]
    lenders = Lenders()
    first = lenders.borrow(lent.memory)
    assert lenders.borrow(lent.memory) is first
    for other in others:
        assert lenders.borrow(other.memory) is not None

    assert lenders.borrow(lent.memory) is not first
    for other in others:
        os.close(other.fd)


async def reading(context: Any) -> None:
    """Read lent pages two at a time, and admit after the end."""
    opening = read_pusher_frame(await context.read())
    assert isinstance(opening, PushOpen)
    assert opening.memory is not None
    borrowed = Lenders().borrow(opening.memory)
    assert borrowed is not None
    await context.write(credit_frame(2, 0))
    num_read = 0
    while True:
        frame = read_pusher_frame(await context.read())
        if isinstance(frame, PagesLent):
            for header, slot in zip(frame.headers, frame.slots, strict=True):
                page = borrowed.page(slot, header.num_bytes)
                assert page is not None and bytes(page) == CONTENT
            num_read += len(frame.slots)
            await context.write(credit_frame(num_read + 2, num_read))
        elif isinstance(frame, HandoffEnd):
            assert frame == an_end(1, num_read)
            await context.write(outcome_frame(None))
            return


@pytest.mark.asyncio
async def test_a_receiver_that_reads_gets_slots_and_gives_them_back(
    tmp_path: Path, lent: Lent
) -> None:
    async with a_sender(tmp_path, reading, pages=lent.pages, memory=lent.memory) as at:
        at.begin()
        at.push(4)
        at.end(4)
        await at.heard.until(lambda _: bool(at.heard.all(PushConfirmed)))

        await at.until_slots(4)


@pytest.mark.asyncio
async def test_a_slot_that_is_not_read_yet_is_not_the_step_loops(
    tmp_path: Path, lent: Lent
) -> None:
    said: list[PagesLent] = []

    async def behave(context: Any) -> None:
        await context.write(credit_frame(9, 0))
        while True:
            frame = read_pusher_frame(await context.read())
            if isinstance(frame, PagesLent):
                said.append(frame)
                at.heard.grown.set()

    async with a_sender(tmp_path, behave, pages=lent.pages, memory=lent.memory) as at:
        at.begin()
        at.push(3)
        await at.heard.until(lambda _: sum(len(frame.slots) for frame in said) == 3)

        assert at.heard.all(SlotsSent) == []
        at.sender.obey(PushClose(channel=1))
        await at.until_slots(3)


@pytest.mark.asyncio
@pytest.mark.parametrize("num_read", [1, 1 << 31])
async def test_a_receiver_that_has_read_what_was_not_lent_is_lost(
    tmp_path: Path, lent: Lent, num_read: int
) -> None:
    behave = saying(credit_frame(0, num_read))
    async with a_sender(tmp_path, behave, pages=lent.pages, memory=lent.memory) as at:
        at.begin()
        at.push(3)

        assert "were not lent" in await at.problem()
        await at.until_slots(3)


@pytest.mark.asyncio
async def test_a_receiver_that_stops_reading_is_not_waited_for_without_end(
    tmp_path: Path, lent: Lent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_sender, "PROGRESS_TIMEOUT_S", 0.1)
    monkeypatch.setattr(push_sender, "WATCH_INTERVAL_S", 0.02)
    behave = saying(credit_frame(9, 0))
    async with a_sender(tmp_path, behave, pages=lent.pages, memory=lent.memory) as at:
        at.begin()
        at.push(3)
        at.end(3)

        assert "took no page" in await at.problem()
        await at.until_slots(3)


@given(sizes=st.lists(st.integers(1, MAX_LENT_BYTES + 5), min_size=1, max_size=2 * MAX_LENT))
def test_a_receiver_reads_a_bounded_number_of_bytes_at_a_time(sizes: list[int]) -> None:
    headers = [PageHeader(1, 0, 0, 0, 64, 0, size) for size in sizes]
    num_pages = num_lent_together(headers)

    assert 1 <= num_pages <= min(len(sizes), MAX_LENT)
    assert num_pages == 1 or sum(sizes[:num_pages]) <= MAX_LENT_BYTES
    # and no fewer than go
    if num_pages < min(len(sizes), MAX_LENT):
        assert sum(sizes[: num_pages + 1]) > MAX_LENT_BYTES


@given(
    headers=st.lists(
        st.builds(
            PageHeader,
            *(st.integers(-(1 << 63), (1 << 63) - 1) for _ in range(7)),
        ),
        max_size=MAX_LENT,
    ),
    data=st.data(),
)
def test_a_frame_of_lent_pages_says_what_it_was_made_of(
    headers: list[PageHeader], data: st.DataObject
) -> None:
    slots = data.draw(st.lists(st.integers(0, 65535), min_size=len(headers), max_size=len(headers)))

    frame = lent_frame(7, headers, slots)

    assert read_pusher_frame(frame) == PagesLent(7, headers, tuple(slots))
    with pytest.raises(MalformedFrame, match="bytes of slots"):
        read_pusher_frame(frame + b"\0")


@given(num_pages=st.integers(0, (1 << 32) - 1), num_read=st.integers(0, (1 << 32) - 1))
def test_credit_tells_what_is_read_where_memory_is_lent(num_pages: int, num_read: int) -> None:
    assert read_receiver_frame(credit_frame(num_pages, num_read)) == Credit(num_pages, num_read)
    assert read_receiver_frame(credit_frame(num_pages)) == Credit(num_pages, None)
