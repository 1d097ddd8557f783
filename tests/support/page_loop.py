"""A step loop that hands made-up pages over, for tests of what lies between two such loops.

A prompt of n tokens has n pages; what is in a page follows from its token and its place. A decode
loop admits a sequence when all its pages are as they must be, and then says its first token alone.
Configured by the JSON of `PageLoopConfig`.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections import deque
from typing import Any

import msgspec

from tenantry_runtime.core import FinishReason, Phase
from tenantry_runtime.pool.messages import (
    Deliver,
    Delivered,
    Failed,
    HandoffEnd,
    HandoffTarget,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    PageHeader,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    ServedElsewhere,
    Started,
    Step,
    Submit,
)
from tenantry_runtime.pool.page_map import PageMap
from tenantry_runtime.pool.page_port import (
    Channel,
    ChannelLost,
    Confirmed,
    EndCame,
    PageCame,
    PagePort,
    SourceLost,
)
from tenantry_runtime.pool.step_loop import Tell

BUILD = "support.page_loop:build_page_loop"

MODEL = "@cf/fake/pages"
FIRST_TOKEN = 77
SENDING, READING = "sending", "reading"
"""Keys of the loop's statistics: slots that are not the side's whose turn it is not."""


class PageLoopConfig(msgspec.Struct, frozen=True, kw_only=True):
    phase: Phase
    page_bytes: int = 5000
    max_pages_per_turn: int = 1 << 30
    step_s: float = 0.0
    """What a turn pretends to compute."""
    hold_pages: bool = False
    """Never release a page that came."""
    answer_late_s: float = 0.0
    broken_page: int | None = None
    """The prefill loop changes a byte of this logical page."""
    description: dict[str, Any] = {}
    """Fields of the member's description."""


class _Outgoing(msgspec.Struct):
    submit: Submit
    deliver: Deliver
    channel: Channel
    next_page: int = 0


class _Incoming(msgspec.Struct):
    submit: Submit
    handoff: int
    num_came: int = 0


class PageLoop:
    def __init__(self, config: PageLoopConfig, port: PagePort) -> None:
        self._config = config
        self._port = port
        self._said: deque[NodeMessage] = deque()
        self._submits: dict[str, Submit] = {}
        self._outgoing: dict[Channel, _Outgoing] = {}
        self._incoming: dict[int, _Incoming] = {}
        self._handoffs = 0
        self._held: list[PageCame] = []
        self._step = 0
        port.allocate(config.page_bytes)
        self._num_slots = port.room

    def submit(self, submit: Submit) -> None:
        name = submit.request_id
        self._submits[name] = submit
        if self._config.phase == "prefill":
            self._said.append(Started(request_id=name))
            return
        self._handoffs += 1
        self._incoming[self._handoffs] = _Incoming(submit, self._handoffs)
        target = HandoffTarget(
            model=MODEL,
            incarnation=0,
            handoff=self._handoffs,
            cache_format=self.describe()[0].cache_format,
            first_page=0,
            pages=b"".join(
                struct.pack("<qq", *_place(self._handoffs, page))
                for page in range(len(submit.token_ids))
            ),
        )
        self._said.append(Reserved(request_id=name, target=target))

    def cancel(self, request_id: str) -> None:
        self._submits.pop(request_id, None)
        for channel, outgoing in list(self._outgoing.items()):
            if outgoing.submit.request_id == request_id:
                self._port.close(channel)
                del self._outgoing[channel]
        for handoff, incoming in list(self._incoming.items()):
            if incoming.submit.request_id == request_id:
                del self._incoming[handoff]

    def served_elsewhere(self, message: ServedElsewhere) -> None:
        """It owes nobody a turn."""

    def deliver(self, deliver: Deliver) -> None:
        submit = self._submits.get(deliver.request_id)
        if submit is not None:
            channel = self._port.open(deliver.target, deliver.address, self.describe()[0])
            self._outgoing[channel] = _Outgoing(submit, deliver, channel)

    @property
    def is_idle(self) -> bool:
        can_push = any(
            outgoing.next_page < len(outgoing.submit.token_ids)
            and self._port.room_for(outgoing.channel)
            for outgoing in self._outgoing.values()
        )
        return not (self._said or can_push)

    def turn(self, tell_ahead: Tell | None = None) -> list[NodeMessage]:
        if self._config.step_s:
            time.sleep(self._config.step_s)
        for event in self._port.events():
            match event:
                case Confirmed(channel=channel):
                    outgoing = self._outgoing.pop(channel)
                    self._said.append(Delivered(request_id=self._ended(outgoing)))
                case ChannelLost(channel=channel, problem=problem):
                    self._fail(self._outgoing.pop(channel).submit, problem)
                case PageCame():
                    self._came(event)
                case EndCame(end=end, source=source):
                    self._admit(end, source)
                case SourceLost(handoff=handoff):
                    incoming = self._incoming.pop(handoff, None)
                    if incoming is not None:
                        self._fail(incoming.submit, "the source is lost")
        for outgoing in list(self._outgoing.values()):
            self._push(outgoing)
        messages = list(self._said)
        self._said.clear()
        return messages

    def page_maps(self) -> tuple[PageMap, ...]:
        return ()

    def statistics(self) -> NodeStatistics:
        return NodeStatistics(
            loop_turn_ns=0,
            num_running=len(self._submits),
            num_waiting=len(self._outgoing) + len(self._incoming),
            num_free_pages={
                SENDING: self._num_slots - self._port.room,
                READING: len(self._held),
            },
        )

    def describe(self) -> tuple[MemberDescription, ...]:
        fields: dict[str, Any] = {
            "model": MODEL,
            "phase": self._config.phase,
            "weights_format": "none",
            "cache_format": "made-up",
            "page_tokens": 1,
            "num_pages": 64,
            "context_tokens": 1 << 40,
            "revision": "0",
        }
        return (MemberDescription(**fields | self._config.description),)

    def close(self) -> None:
        self._submits.clear()

    def _ended(self, outgoing: _Outgoing) -> str:
        self._submits.pop(outgoing.submit.request_id, None)
        return outgoing.submit.request_id

    def _fail(self, submit: Submit, problem: str) -> None:
        self._submits.pop(submit.request_id, None)
        self._said.append(Failed(request_id=submit.request_id, reason="handoff", message=problem))

    def _push(self, outgoing: _Outgoing) -> None:
        token_ids = outgoing.submit.token_ids
        handoff = outgoing.deliver.target.handoff
        num_pushed = 0
        while (
            outgoing.next_page < len(token_ids)
            and self._port.room_for(outgoing.channel)
            and num_pushed < self._config.max_pages_per_turn
        ):
            page = outgoing.next_page
            content = page_content(token_ids[page], page, self._config.page_bytes)
            index, tag = _place(handoff, page)
            header = PageHeader(handoff, page, index, tag, 1, zlib.crc32(content), len(content))
            if page == self._config.broken_page:
                content = content[:-1] + bytes([content[-1] ^ 1])
            self._port.push(outgoing.channel, header, memoryview(content))
            outgoing.next_page += 1
            num_pushed += 1
            if outgoing.next_page == len(token_ids):
                self._port.end(outgoing.channel, an_end(handoff, len(token_ids)))

    def _came(self, page: PageCame) -> None:
        incoming = self._incoming.get(page.header.handoff)
        problem: str | None = None
        if incoming is None:
            problem = "the hand-off is over"
        else:
            problem = self._problem_with(page, incoming)
            if problem is not None:
                del self._incoming[incoming.handoff]
                self._fail(incoming.submit, problem)
        if problem is not None:
            self._port.answer(page.source, problem)
        if self._config.hold_pages:
            self._held.append(page)
        else:
            self._port.release([page])

    def _problem_with(self, page: PageCame, incoming: _Incoming) -> str | None:
        place = incoming.num_came
        incoming.num_came += 1
        header = page.header
        if header.logical_page != place or place >= len(incoming.submit.token_ids):
            return f"page {header.logical_page} came in place of {place}"
        if (header.index, header.tag) != _place(incoming.handoff, place):
            return f"page {place} has a foreign tag"
        if zlib.crc32(page.data) != header.digest:
            return f"page {place} does not verify"
        token_id = incoming.submit.token_ids[place]
        if page.data != page_content(token_id, place, self._config.page_bytes):
            return f"page {place} is another"
        return None

    def _admit(self, end: HandoffEnd, source: int) -> None:
        incoming = self._incoming.pop(end.handoff, None)
        time.sleep(self._config.answer_late_s)
        if incoming is None or incoming.num_came != len(incoming.submit.token_ids):
            self._port.answer(source, "pages are missing")
            return
        self._port.answer(source, None)
        name = incoming.submit.request_id
        self._submits.pop(name, None)
        self._step += 1
        tokens = SequenceTokens(name, (end.first_token,), FinishReason.LENGTH)
        self._said.append(Step(step=self._step, sequences=[tokens]))
        self._said.append(
            PrefixChanges(
                model=MODEL, phase="decode", added=struct.pack("<Q", end.handoff), removed=b""
            )
        )


def page_content(token_id: int, page: int, num_bytes: int) -> bytes:
    pattern = struct.pack("<qq", token_id, page)
    return (pattern * (num_bytes // len(pattern) + 1))[:num_bytes]


def an_end(handoff: int, num_pages: int) -> HandoffEnd:
    return HandoffEnd(
        handoff=handoff,
        num_pages=num_pages,
        first_token=FIRST_TOKEN,
        queued_ns=1,
        prefill_started_ns=2,
        first_token_ns=3,
        num_prefill_chunks=1,
    )


def _place(handoff: int, page: int) -> tuple[int, int]:
    return page, handoff << 20 | page


def build_page_loop(config: bytes, port: PagePort) -> PageLoop:
    return PageLoop(msgspec.json.decode(config, type=PageLoopConfig), port)
