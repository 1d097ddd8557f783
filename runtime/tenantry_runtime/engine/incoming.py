"""The decode side of hand-offs: pages are verified, then written where they were reserved.

| what comes | what becomes of it |
|---|---|
| a page of a reservation that is open, from the one who pushes to it | its digest is verified, then it is written as the check of pages lets it |
| a page, or an end, of no open reservation, or from somebody else | its pusher is refused; nobody here notices |
| a page that is not as reserved, or comes twice, or is not what was sent | the request ends with `cache_integrity` |
| the end | the sequence runs, if all of its pages are written, and all that it holds pass the check |

All pages of a turn are verified, checked and written in one call for each pool, whatever hand-offs
they are of. Pages beyond a turn's bound wait in the port's memory, which in turn slows down whoever
pushes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from tenantry_runtime.cache.fault_word import logical_page
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.pages import HandoffId, PageIndex, PageRef, Tag
from tenantry_runtime.cache.reservation import PushedPage
from tenantry_runtime.cache.wire import ArrivedPage
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.errors import CacheIntegrityError
from tenantry_runtime.pool.messages import PageHeader
from tenantry_runtime.pool.page_port import EndCame, PageCame, PagePort, SourceLost

from .crossing import Reception, Source
from .incidents import found_of, handoff_incident
from .lane import Lane
from .sequence import Receiving, Sequence

Arrival: TypeAlias = PageCame | EndCame | SourceLost

_log = logging.getLogger(__name__)

_LATE = "there is no such reservation, or it is closed"


_Crossing: TypeAlias = tuple[PagePort, int, int]
"""A port, a hand-off and the incoming stream that brings it: by it alone arrivals are in order."""


@dataclass(frozen=True, slots=True)
class _Parcel:
    """Pages of one hand-off."""

    port: PagePort
    source: int
    pages: list[PageCame]


@dataclass(frozen=True, slots=True)
class _Part:
    """What is taken at once: pages, and then what concludes hand-offs."""

    parcels: list[_Parcel]
    conclusions: list[tuple[PagePort, EndCame | SourceLost]]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _Expected:
    """Pages of one hand-off that are as they were reserved."""

    sequence: Sequence
    reception: Reception
    pages: list[PageCame]
    runs: PageBatch
    """Of the same, as their reservation lets them be written."""


class Incoming:
    """All hand-offs into a node."""

    def __init__(self, lanes: Iterable[Lane], *, max_bytes: int) -> None:
        """`max_bytes` of pages are written in a turn, but one page always may be."""
        self._lanes = tuple(lanes)
        self._max_bytes = max_bytes
        self._arrived: deque[tuple[PagePort, Arrival]] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether something that came before the last `take` is still to be used."""
        return bool(self._arrived)

    def add(self, port: PagePort, arrival: Arrival) -> None:
        self._arrived.append((port, arrival))

    def take(self, now_s: float) -> bool:
        """Use what has come, in order, up to the turn's bound; return whether anything had."""
        num_bytes, has_taken = 0, False
        while part := self._next_part(num_bytes):
            has_taken = True
            num_bytes += part.num_bytes
            self._take_pages(part.parcels, now_s)
            for port, conclusion in part.conclusions:
                if isinstance(conclusion, EndCame):
                    self._take_end(port, conclusion, now_s)
                else:
                    self._lose(port, conclusion)
        return has_taken

    def lose(self, port: PagePort, problem: str) -> bool:
        """Give up all that comes in through a port; return whether anything did."""
        lost = [
            (lane, sequence)
            for lane in self._lanes
            for sequence in lane.scheduler.admitted
            if _comes_through(sequence, port)
        ]
        for lane, sequence in lost:
            lane.scheduler.give_up(sequence, "handoff", problem)
        return bool(lost)

    def _next_part(self, num_taken: int) -> _Part | None:
        """Take what has come up to the turn's bound, of which `num_taken` bytes are used up.

        Order matters inside a hand-off alone: its pages, then how it ended. What follows that is
        left to the next part.
        """
        parcels: dict[_Crossing, list[PageCame]] = {}
        conclusions: dict[_Crossing, tuple[PagePort, EndCame | SourceLost]] = {}
        left: list[tuple[PagePort, Arrival]] = []
        num_bytes = 0
        while self._arrived:
            port, arrival = self._arrived.popleft()
            handoff, source = _handoff_of(arrival)
            key = port, handoff, source
            if key in conclusions:
                left.append((port, arrival))
            elif isinstance(arrival, PageCame):
                num_more = arrival.header.num_bytes
                num_before = num_taken + num_bytes
                if num_before and num_before + num_more > self._max_bytes:
                    left.append((port, arrival))
                    break
                num_bytes += num_more
                parcels.setdefault(key, []).append(arrival)
            else:
                conclusions[key] = port, arrival
        self._arrived.extendleft(reversed(left))
        if not parcels and not conclusions:
            return None
        return _Part(
            [_Parcel(port, source, pages) for (port, _, source), pages in parcels.items()],
            list(conclusions.values()),
            num_bytes,
        )

    def _take_pages(self, parcels: list[_Parcel], now_s: float) -> None:
        """Verify and write pages of many hand-offs; give the memory back that they came in."""
        try:
            for lane, expected in self._expected(parcels, now_s):
                try:
                    self._verify_and_write(lane, expected, now_s)
                except Exception as error:
                    # as that of a step, it is that of all whose pages were in one call
                    for each in expected:
                        if isinstance(each.sequence.state, Receiving):
                            self._fail(lane, each.sequence, "pages could not be written", error)
        finally:
            pages: dict[PagePort, list[PageCame]] = {}
            for parcel in parcels:
                pages.setdefault(parcel.port, []).extend(parcel.pages)
            for port, read in pages.items():
                port.release(read)

    def _expected(self, parcels: list[_Parcel], now_s: float) -> list[tuple[Lane, list[_Expected]]]:
        """Return, by pool, what is as it was reserved; refuse the rest, or end its sequence."""
        expected: dict[int, tuple[Lane, list[_Expected]]] = {}
        for parcel in parcels:
            found = self._open(parcel.pages[0].header.handoff, (parcel.port, parcel.source))
            if found is None:
                parcel.port.answer(parcel.source, _LATE)
                continue
            lane, sequence, reception = found
            reservation = reception.reservation
            pushed = [_pushed(page.header, reservation.handoff) for page in parcel.pages]
            runs = refused = None
            try:
                runs = reservation.accept(pushed)
            except CacheIntegrityError:
                refused = reservation.refused(pushed)
            mismatch = self._mismatch(lane, sequence, reception, parcel.pages, refused)
            if mismatch is not None:
                self._distrust(lane, sequence, *mismatch, now_s=now_s)
                continue
            assert runs is not None, "what is refused is a mismatch"
            _, of_lane = expected.setdefault(id(lane), (lane, []))
            of_lane.append(_Expected(sequence, reception, parcel.pages, runs))
        return list(expected.values())

    def _verify_and_write(self, lane: Lane, expected: list[_Expected], now_s: float) -> None:
        """Write pages into one pool: one call each verifies, checks and writes them all.

        One page that is not what was sent, or may not be written, ends its own sequence alone.
        """
        arrivals = lane.wire.load([_arrived(page) for each in expected for page in each.pages])
        verdicts = iter(lane.wire.verify(arrivals))
        verified: list[_Expected] = []
        places: list[int] = []
        place = 0
        for each in expected:
            wrong = [page for page in each.pages if not next(verdicts)]
            if wrong:
                self._distrust(lane, each.sequence, wrong[0].header, "digest", now_s=now_s)
            else:
                verified.append(each)
                places += range(place, place + len(each.pages))
            place += len(each.pages)
        if not verified:
            return
        writes = PageBatch.joined(each.runs for each in verified)
        outcomes = iter(lane.wire.from_wire(writes, arrivals.only(places)))
        for each in verified:
            refused = [o for o in islice(outcomes, len(each.runs.leases_S)) if not o.is_ok]
            if refused:
                self._distrust_page(lane, each.sequence, refused[0].fault, now_s)
            else:
                each.reception.written.update(page.header.logical_page for page in each.pages)
                num_bytes = sum(page.header.num_bytes for page in each.pages)
                lane.meter.received(len(each.pages), num_bytes)

    def _open(self, handoff: int, source: Source) -> tuple[Lane, Sequence, Reception] | None:
        """Return who waits for this hand-off from this source, which from here on is its only one."""
        for lane in self._lanes:
            sequence = lane.scheduler.receiving(handoff)
            if sequence is None:
                continue
            assert isinstance(sequence.state, Receiving), sequence.state
            reception = sequence.state.reception
            if reception.source is None:
                reception.source = source
            return (lane, sequence, reception) if reception.source == source else None
        return None

    def _mismatch(
        self,
        lane: Lane,
        sequence: Sequence,
        reception: Reception,
        pages: list[PageCame],
        refused: int | None,
    ) -> tuple[PageHeader, str] | None:
        """Return the first page that is not as it was reserved, and what differs.

        `refused` is the place of the one that the reservation refuses.
        """
        seen = set(reception.written)
        page_bytes, num_prompt = lane.wire.page_bytes, sequence.num_prompt
        for place, page in enumerate(pages):
            header = page.header
            if place == refused:
                return header, "tag"
            missing = num_prompt - header.logical_page * PAGE_TOKENS
            if header.logical_page in seen or header.num_tokens != min(missing, PAGE_TOKENS):
                return header, "fill"
            if page.data.nbytes != header.num_bytes or header.num_bytes != page_bytes:
                return header, "size"
            seen.add(header.logical_page)
        return None

    def _take_end(self, port: PagePort, came: EndCame, now_s: float) -> None:
        found = self._open(came.end.handoff, (port, came.source))
        if found is None:
            port.answer(came.source, _LATE)
            return
        lane, sequence, reception = found
        num_written, num_wanted = len(reception.written), reception.num_wanted
        if num_written < num_wanted or came.end.num_pages != num_wanted:
            problem = (
                f"{num_written} of {num_wanted} pages have come, {came.end.num_pages} were sent"
            )
            lane.scheduler.give_up(sequence, "handoff", problem)
            return
        if not 0 <= came.end.first_token < lane.vocab_size:
            # it would fail a whole step, and with it the sequences of others
            problem = f"{came.end.first_token} is no token of {lane.model}"
            lane.scheduler.give_up(sequence, "handoff", problem)
            return
        # the pages that were here already, too, before anything is told
        held = sequence.held
        try:
            fault = lane.wire.fault(held.lease, held.owner, sequence.num_prompt)
        except Exception as error:
            self._fail(lane, sequence, "pages could not be checked", error)
            return
        if fault:
            self._distrust_page(lane, sequence, fault, now_s)
        else:
            lane.scheduler.receive(sequence, came.end, now_s)

    def _lose(self, port: PagePort, lost: SourceLost) -> None:
        found = self._open(lost.handoff, (port, lost.source))
        if found is not None:
            lane, sequence, reception = found
            # nobody is left to be answered
            reception.source = None
            lane.scheduler.give_up(sequence, "handoff", "the prefill member is gone")

    def _fail(self, lane: Lane, sequence: Sequence, problem: str, error: Exception) -> None:
        """Confine an error to its sequence, as a step's is."""
        _log.error("%s: %s", lane.name, problem, exc_info=error, extra=sequence.about())
        lane.scheduler.give_up(sequence, "internal", f"{problem} ({type(error).__name__})")

    def _distrust(
        self, lane: Lane, sequence: Sequence, header: PageHeader, found: str, *, now_s: float
    ) -> None:
        """End a sequence to which something else was brought; its pages are as they were."""
        incident = handoff_incident(
            sequence,
            "hand-off write",
            logical_page=header.logical_page,
            found=(found,),
            now_s=now_s,
        )
        lane.scheduler.distrust(sequence, incident, is_kept=False)

    def _distrust_page(self, lane: Lane, sequence: Sequence, fault: int, now_s: float) -> None:
        """End a sequence of which a reserved page is not its own."""
        incident = handoff_incident(
            sequence,
            "hand-off write",
            logical_page=logical_page(fault),
            found=found_of(fault),
            now_s=now_s,
        )
        lane.scheduler.distrust(sequence, incident, is_kept=True)


def _handoff_of(arrival: Arrival) -> tuple[int, int]:
    """Return a hand-off and its source, by which alone its arrivals are in order."""
    match arrival:
        case PageCame(header=header):
            return header.handoff, arrival.source
        case EndCame(end=end):
            return end.handoff, arrival.source
        case SourceLost(handoff=handoff):
            return handoff, arrival.source


def _comes_through(sequence: Sequence, port: PagePort) -> bool:
    state = sequence.state
    source = state.reception.source if isinstance(state, Receiving) else None
    return source is not None and source[0] is port


def _pushed(header: PageHeader, handoff: HandoffId) -> PushedPage:
    return PushedPage(
        # the reservation was found by its number
        handoff=handoff,
        logical_page=header.logical_page,
        ref=PageRef(PageIndex(header.index), Tag(header.tag)),
        num_tokens=header.num_tokens,
    )


def _arrived(page: PageCame) -> ArrivedPage:
    header = page.header
    return ArrivedPage(
        handoff=header.handoff,
        logical_page=header.logical_page,
        tag=Tag(header.tag),
        digest=header.digest,
        data=page.data,
    )
