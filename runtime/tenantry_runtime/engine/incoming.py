"""The decode side of hand-offs: pages are verified, then written where they were reserved.

| what comes | what becomes of it |
|---|---|
| a page of a reservation that is open, from the one who pushes to it | its digest is verified, then it is written as the check of pages lets it |
| a page, or an end, of no open reservation, or from somebody else | its pusher is refused; nobody here notices |
| a page that is not as reserved, or comes twice, or is not what was sent | the request ends with `cache_integrity` |
| the end | the sequence runs, if all of its pages are written, and all that it holds pass the check |

Pages beyond a turn's bound wait in the port's memory, which in turn slows down whoever pushes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias, assert_never

from tenantry_runtime.cache.fault_word import logical_page
from tenantry_runtime.cache.pages import HandoffId, PageIndex, PageRef, Tag
from tenantry_runtime.cache.reservation import PushedPage
from tenantry_runtime.cache.wire import ArrivedPage
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.pool.messages import PageHeader
from tenantry_runtime.pool.page_port import EndCame, PageCame, PagePort, SourceLost

from .crossing import Reception, Source
from .incidents import found_of, handoff_incident
from .lane import Lane
from .sequence import Receiving, Sequence

Arrival: TypeAlias = PageCame | EndCame | SourceLost

_log = logging.getLogger(__name__)

_LATE = "there is no such reservation, or it is closed"


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
        while self._arrived:
            port, arrival = self._arrived[0]
            has_taken = True
            match arrival:
                case PageCame(header=header):
                    if num_bytes and num_bytes + header.num_bytes > self._max_bytes:
                        break
                    num_bytes += self._take_pages(port, arrival, self._max_bytes - num_bytes, now_s)
                case EndCame():
                    self._arrived.popleft()
                    self._take_end(port, arrival, now_s)
                case SourceLost():
                    self._arrived.popleft()
                    self._lose(port, arrival)
                case _:
                    assert_never(arrival)
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

    def _take_pages(self, port: PagePort, first: PageCame, max_bytes: int, now_s: float) -> int:
        """Take the next page and all later ones of the same hand-off; return their bytes.

        One call verifies and writes them all, which costs a fraction of a call for each. Order
        matters inside a hand-off alone.
        """
        pages: list[PageCame] = []
        others: deque[tuple[PagePort, Arrival]] = deque()
        num_bytes = 0
        is_full = False
        for came in self._arrived:
            from_port, arrival = came
            is_ours = from_port is port and _handoff_of(arrival) == _handoff_of(first)
            if is_ours and isinstance(arrival, PageCame) and not is_full:
                is_full = bool(pages) and num_bytes + arrival.header.num_bytes > max_bytes
                if not is_full:
                    pages.append(arrival)
                    num_bytes += arrival.header.num_bytes
                    continue
            # nothing overtakes what the same hand-off has said before
            is_full = is_full or is_ours
            others.append(came)
        self._arrived = others
        try:
            self._write(port, pages, now_s)
        finally:
            for page in pages:
                port.release(page)
        return num_bytes

    def _write(self, port: PagePort, pages: list[PageCame], now_s: float) -> None:
        header = pages[0].header
        found = self._open(header.handoff, (port, pages[0].source))
        if found is None:
            port.answer(pages[0].source, _LATE)
            return
        lane, sequence, reception = found
        mismatch = self._mismatch(lane, sequence, reception, pages)
        if mismatch is not None:
            self._distrust(lane, sequence, *mismatch, now_s=now_s)
            return
        try:
            self._verify_and_write(lane, sequence, reception, pages, now_s)
        except Exception as error:
            self._fail(lane, sequence, "pages could not be written", error)

    def _verify_and_write(
        self,
        lane: Lane,
        sequence: Sequence,
        reception: Reception,
        pages: list[PageCame],
        now_s: float,
    ) -> None:
        arrivals = lane.wire.load([_arrived(page) for page in pages])
        for page, is_verified in zip(pages, lane.wire.verify(arrivals), strict=True):
            if not is_verified:
                self._distrust(lane, sequence, page.header, "digest", now_s=now_s)
                return
        writes = reception.reservation.accept([_pushed(page.header) for page in pages])
        for page, outcome in zip(pages, lane.wire.from_wire(writes, arrivals), strict=True):
            if not outcome.is_ok:
                self._distrust_page(lane, sequence, outcome.fault, now_s)
                return
            reception.written.add(page.header.logical_page)

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
        self, lane: Lane, sequence: Sequence, reception: Reception, pages: list[PageCame]
    ) -> tuple[PageHeader, str] | None:
        """Return the first page that is not as it was reserved, and what differs."""
        seen = set(reception.written)
        for page in pages:
            header = page.header
            if reception.reservation.refusal(_pushed(header)):
                return header, "tag"
            missing = sequence.num_prompt - header.logical_page * PAGE_TOKENS
            if header.logical_page in seen or header.num_tokens != min(missing, PAGE_TOKENS):
                return header, "fill"
            if page.data.nbytes != header.num_bytes or header.num_bytes != lane.wire.page_bytes:
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
        _log.error("%s: %s", lane.name, problem, exc_info=error)
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


def _pushed(header: PageHeader) -> PushedPage:
    return PushedPage(
        handoff=HandoffId(header.handoff),
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
