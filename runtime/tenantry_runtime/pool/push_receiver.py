"""Hand-offs from other nodes into this one: their pages come into shared memory, no further.

The step loop decides what becomes of a page. Here a stream that breaks, lies about its hand-off or
sends what it has no credit for is ended, and the loop hears of it once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import anyio
import grpc

from .bell import Bell
from .frames import MalformedFrame
from .lent_pages import BorrowedPages, Lenders
from .messages import HandoffEnd, MemberDescription, PageHeader, PushOpen
from .page_messages import EndArrived, PageCommand, PagesArrived, PushAnswer, SourceGone
from .pairing import differences
from .push_credits import Claim, Credits, CreditStatistics
from .push_frames import (
    Credit,
    PageGoesOn,
    PagesBegin,
    PagesLent,
    PusherFrame,
    PushOutcome,
    Ready,
    credit_frame,
    outcome_frame,
    read_pusher_frame,
)
from .shared_pages import SharedPages
from .tls import is_unix

MAX_STREAMS = 1024
"""More hand-offs at a time than any member has sequences; the next is refused."""

OPEN_TIMEOUT_S = 10.0
"""For the first frame of a stream."""

PAGE_TIMEOUT_S = 15.0
"""For the next bytes of a page that has credit: its slot is kept from others meanwhile."""

IDLE_TIMEOUT_S = 300.0
"""Between two pages where none has credit: longer than a prompt's longest chunk takes."""

WATCH_INTERVAL_S = 1.0

OUTCOME_TIMEOUT_S = 5.0
"""For a pusher to take the last frame."""

_log = logging.getLogger(__name__)


class Refused(Exception):
    """The hand-off cannot come here; the message goes to the pusher."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Page:
    """A page that is not whole yet."""

    slot: int
    header: PageHeader
    num_bytes: int = 0
    """That have come."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Incoming:
    """One stream."""

    source: int
    handoff: int
    claim: Claim
    lent: BorrowedPages | None
    """The pusher's own slots; None: they cannot be read here."""
    page: _Page | None = None
    """Whose bytes are coming."""
    num_received: int = 0
    """Whole pages."""
    num_frames: int = 0
    is_ended: bool = False
    """The pusher has said so."""
    outcome: PushOutcome | None = None
    """Set when it is over."""
    changed: Bell = field(default_factory=Bell)
    """Rung for promises and the outcome."""

    @property
    def is_owed_a_page(self) -> bool:
        return self.page is not None or bool(self.claim.promised)

    @property
    def credit(self) -> Credit:
        """What the pusher is to know."""
        return Credit(self.claim.num_promised, None if self.lent is None else self.num_received)

    @property
    def progress(self) -> tuple[int, int]:
        return (self.num_frames, self.claim.num_promised)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverStatistics:
    num_streams: int
    credits: CreditStatistics | None


class PushReceiver:
    """Answers Push calls on behalf of one step loop."""

    def __init__(self, *, incarnation: int, post: Callable[[PageCommand], None]) -> None:
        self._incarnation = incarnation
        self._post = post
        self._members: tuple[MemberDescription, ...] = ()
        self._pages: SharedPages | None = None
        self._credits: Credits | None = None
        self._streams: dict[int, _Incoming] = {}
        self._by_claim: dict[Claim, _Incoming] = {}
        self._sources = count(1)
        self._lenders = Lenders()

    def open(self, members: tuple[MemberDescription, ...], pages: SharedPages | None) -> None:
        """Take hand-offs from now on; without pages, none."""
        self._members = members
        if pages is not None:
            self._pages = pages
            self._credits = Credits(pages.layout.num_slots)

    def free(self, slots: Iterable[int]) -> None:
        """The step loop does not need these incoming slots any more."""
        assert self._credits is not None
        self._announce(self._credits.free(slots))

    def answer(self, answer: PushAnswer) -> None:
        """End a stream as the step loop says; one that is over already is ignored."""
        stream = self._streams.get(answer.source)
        if stream is not None:
            self._conclude(stream, answer.problem)

    def statistics(self) -> ReceiverStatistics:
        return ReceiverStatistics(
            num_streams=len(self._streams),
            credits=None if self._credits is None else self._credits.statistics(),
        )

    # grpc has no types
    async def push(self, _requests: object, context: Any) -> None:
        """Handle one Push call."""
        try:
            opening = await self._opening(context)
        except (Refused, MalformedFrame) as error:
            _log.error("a hand-off is refused: %s", error)
            with anyio.move_on_after(OUTCOME_TIMEOUT_S), suppress(grpc.aio.BaseError):
                await context.write(outcome_frame(str(error)))
        else:
            await self._receive(opening, context)

    async def _opening(self, context: Any) -> PushOpen:
        with anyio.move_on_after(OPEN_TIMEOUT_S):
            frame = await context.read()
            opening = None if frame is grpc.aio.EOF else read_pusher_frame(frame)
            if not isinstance(opening, PushOpen):
                raise MalformedFrame("the first frame introduces no hand-off")
            self._check(opening)
            return opening
        raise Refused(f"no hand-off was introduced within {OPEN_TIMEOUT_S:g} s")

    def _check(self, opening: PushOpen) -> None:
        """Raise `Refused` unless the hand-off may come here."""
        target = opening.target
        if target.incarnation != self._incarnation:
            raise Refused(
                f"the hand-off is for incarnation {target.incarnation} of the node, "
                f"this is {self._incarnation}"
            )
        member = self._decode_member(target.model)
        if member is None or self._pages is None:
            raise Refused(f"no member here decodes {target.model!r} from pages of other nodes")
        if target.cache_format != member.cache_format:
            raise Refused(
                f"the pages are to be {target.cache_format!r}, "
                f"the decode member's cache is {member.cache_format!r}"
            )
        if found := differences(opening.source, member):
            raise Refused("the members cannot be paired: " + "; ".join(found))
        if len(self._streams) >= MAX_STREAMS:
            raise Refused(f"{MAX_STREAMS} hand-offs are coming in already")
        if any(stream.handoff == target.handoff for stream in self._streams.values()):
            raise Refused(f"hand-off {target.handoff} is coming in already")

    def _decode_member(self, model: str) -> MemberDescription | None:
        for member in self._members:
            if member.model == model and member.phase == "decode":
                return member
        return None

    async def _receive(self, opening: PushOpen, context: Any) -> None:
        """Take the stream's pages until it is over, and tell the pusher how it ended."""
        assert self._credits is not None
        stream = _Incoming(
            source=next(self._sources),
            handoff=opening.target.handoff,
            claim=self._credits.open(),
            lent=self._borrowed(opening, context),
        )
        self._streams[stream.source] = stream
        self._by_claim[stream.claim] = stream
        try:
            async with anyio.create_task_group() as tasks:

                async def until_over(side: Callable[[], Awaitable[str]]) -> None:
                    problem = await _problem_of(side)
                    if self._conclude(stream, problem):
                        _log.error("hand-off %s broke off: %s", stream.handoff, problem)
                    # the other side of the stream may be waiting for a pusher that is gone
                    tasks.cancel_scope.deadline = anyio.current_time() + OUTCOME_TIMEOUT_S

                tasks.start_soon(until_over, lambda: self._read(stream, context))
                tasks.start_soon(until_over, lambda: _watch(stream))
                with suppress(grpc.aio.BaseError):
                    await _write(stream, context)
                tasks.cancel_scope.cancel()
        finally:
            self._conclude(stream, "the pusher is gone")

    def _borrowed(self, opening: PushOpen, context: Any) -> BorrowedPages | None:
        # who comes over a network has no memory here, whatever it says
        if opening.memory is None or not is_unix(context.peer()):
            return None
        return self._lenders.borrow(opening.memory)

    def _conclude(self, stream: _Incoming, problem: str | None) -> bool:
        """End a stream and let go of all it has; return False if it was over already."""
        assert self._credits is not None
        if stream.outcome is not None:
            return False
        stream.outcome = PushOutcome(problem=problem)
        del self._streams[stream.source]
        del self._by_claim[stream.claim]
        if stream.page is not None:
            # one that is not whole is nobody's
            stream.claim.promised.append(stream.page.slot)
        self._announce(self._credits.close(stream.claim))
        self._post(SourceGone(source=stream.source, handoff=stream.handoff))
        stream.changed.ring()
        return True

    def _announce(self, served: set[Claim]) -> None:
        for claim in served:
            self._by_claim[claim].changed.ring()

    async def _read(self, stream: _Incoming, context: Any) -> str:
        while (frame := await context.read()) is not grpc.aio.EOF:
            if stream.outcome is None:
                stream.num_frames += 1
                self._accept(stream, read_pusher_frame(frame))
        return "the pusher ended the stream"

    def _accept(self, stream: _Incoming, frame: PusherFrame) -> None:
        assert self._credits is not None
        if stream.is_ended:
            raise MalformedFrame("a frame after the hand-off's end")
        match frame:
            case Ready(num_ready=num_ready):
                self._announce(self._credits.ask(stream.claim, num_ready))
            case PagesBegin() | PagesLent():
                self._take_pages(stream, frame)
                # the slots are taken before others are promised, so that the window moves on
                self._announce(self._credits.ask(stream.claim, frame.num_ready))
            case PageGoesOn(part=part):
                self._tell(stream, [page] if (page := self._write(stream, part)) else [])
            case HandoffEnd():
                self._end(stream, frame)
            case PushOpen():
                raise MalformedFrame("a second introduction")

    def _take_pages(self, stream: _Incoming, frame: PagesBegin | PagesLent) -> None:
        parts = _cut(frame) if isinstance(frame, PagesBegin) else _read(frame, stream.lent)
        whole: list[_Page] = []
        try:
            for header in frame.headers:
                self._begin_page(stream, header)
                if page := self._write(stream, next(parts)):
                    whole.append(page)
            # what is wrong behind the last page
            next(parts, None)
        finally:
            # their slots are the loop's to give back, whatever comes after them
            self._tell(stream, whole)
        if stream.lent is not None:
            # the pusher waits for its own
            stream.changed.ring()

    def _begin_page(self, stream: _Incoming, header: PageHeader) -> None:
        assert self._pages is not None and self._credits is not None
        if stream.page is not None:
            raise MalformedFrame("a page begins within another")
        if header.handoff != stream.handoff:
            raise MalformedFrame(f"a page of hand-off {header.handoff}, not {stream.handoff}")
        if not 0 < header.num_bytes <= self._pages.layout.slot_bytes:
            raise MalformedFrame(f"a page of {header.num_bytes} bytes")
        slot = self._credits.take(stream.claim)
        if slot is None:
            raise MalformedFrame("a page without credit")
        stream.page = _Page(slot=slot, header=header)

    def _write(self, stream: _Incoming, part: memoryview) -> _Page | None:
        """Write a page's next bytes; return it if it is whole by that."""
        assert self._pages is not None
        page = stream.page
        if page is None:
            raise MalformedFrame("bytes of no page")
        written = page.num_bytes + len(part)
        if written > page.header.num_bytes:
            raise MalformedFrame(f"{written} bytes of a page of {page.header.num_bytes}")
        self._pages.incoming(page.slot)[page.num_bytes : written] = part
        page.num_bytes = written
        if written < page.header.num_bytes:
            return None
        stream.page = None
        stream.num_received += 1
        return page

    def _tell(self, stream: _Incoming, whole: Sequence[_Page]) -> None:
        if whole:
            pages = tuple((page.slot, page.header) for page in whole)
            self._post(PagesArrived(source=stream.source, pages=pages))

    def _end(self, stream: _Incoming, end: HandoffEnd) -> None:
        if end.handoff != stream.handoff:
            raise MalformedFrame(f"the end of hand-off {end.handoff}, not {stream.handoff}")
        if stream.page is not None:
            raise MalformedFrame("the end within a page")
        stream.is_ended = True
        self._post(EndArrived(source=stream.source, end=end))


def _cut(frame: PagesBegin) -> Iterator[memoryview]:
    """Yield what a frame has of each of its pages."""
    rest = frame.part
    for header in frame.headers:
        yield rest[: header.num_bytes]
        rest = rest[header.num_bytes :]
    if rest:
        raise MalformedFrame(f"{len(rest)} bytes of no page")


def _read(frame: PagesLent, lent: BorrowedPages | None) -> Iterator[memoryview]:
    """Yield each of a frame's pages where it lies."""
    if lent is None:
        raise MalformedFrame("pages in memory that is not read here")
    for header, slot in zip(frame.headers, frame.slots, strict=True):
        page = lent.page(slot, header.num_bytes)
        if page is None:
            raise MalformedFrame(f"a page in slot {slot}, which was not lent")
        yield page


async def _write(stream: _Incoming, context: Any) -> None:
    """Tell the pusher what it may push, and at last how it ended.

    Nothing else writes: a write that is given up leaves the stream of no use.
    """
    told: Credit | None = None
    while stream.outcome is None:
        if told != stream.credit:
            told = stream.credit
            await context.write(credit_frame(*told))
        else:
            await stream.changed.rung()
    await context.write(outcome_frame(stream.outcome.problem))


async def _watch(stream: _Incoming) -> str:
    """Return when the pusher has owed something for too long."""
    seen = stream.progress
    since_s = anyio.current_time()
    while True:
        # a frame costs nothing here, at the price of noticing a second late
        await anyio.sleep(WATCH_INTERVAL_S)
        if stream.outcome is not None:
            return "it is over"
        if stream.is_ended or stream.progress != seen:
            seen = stream.progress
            since_s = anyio.current_time()
        limit_s = PAGE_TIMEOUT_S if stream.is_owed_a_page else IDLE_TIMEOUT_S
        if anyio.current_time() - since_s > limit_s:
            return f"nothing came for {limit_s:g} s"


async def _problem_of(side: Callable[[], Awaitable[str]]) -> str:
    try:
        return await side()
    except MalformedFrame as error:
        return str(error)
    except grpc.aio.BaseError as error:
        return f"the pusher is gone: {error}"
