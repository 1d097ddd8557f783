"""The prefill side of hand-offs: pages go out chunk by chunk, while the rest is being computed.

Pages leave in the order of hand-offs, oldest first, as long as the port has room and a turn's bound
is not reached. What they were read from passed the check of pages, or nothing leaves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenantry_runtime.cache.fault_word import logical_page
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.wire import Departure, WirePage
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.pool.messages import Deliver, HandoffTarget, PageHeader
from tenantry_runtime.pool.page_port import Channel, PagePort

from .crossing import Delivery
from .incidents import found_of, handoff_incident
from .lane import Lane
from .sequence import Delivering, Sequence, Waiting, pages_for

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sender:
    lane: Lane
    sequence: Sequence
    delivery: Delivery
    opened_ns: int
    """On the monotonic clock."""


class Outgoing:
    """All hand-offs out of a node."""

    def __init__(self, lanes: Iterable[Lane], *, max_bytes: int) -> None:
        """`max_bytes` of pages leave in a turn, but one page always may."""
        self._lanes: Mapping[str, Lane] = {lane.model: lane for lane in lanes}
        self._max_bytes = max_bytes
        self._senders: dict[tuple[PagePort, Channel], _Sender] = {}

    def deliver(self, deliver: Deliver, port: PagePort) -> None:
        """Open the way to a decode member. A sequence that is gone is ignored."""
        lane = self._lanes.get(deliver.target.model)
        sequence = lane.scheduler.sequence(deliver.request_id) if lane is not None else None
        if lane is None or sequence is None or sequence.submit.part != "prefill":
            return
        try:
            cache = self._checked(lane, sequence, deliver.target)
        except ValueError as error:
            lane.scheduler.give_up(sequence, "handoff", str(error))
            return
        source = lane.member("prefill").describe()
        try:
            channel = port.open(deliver.target, deliver.address, source)
        except Exception as error:
            self._fail(lane, sequence, "handoff", error)
            return
        delivery = Delivery(port, channel, deliver.target, cache, opened_ns=time.time_ns())
        sequence.deliver_to(delivery)
        self._senders[port, channel] = _Sender(lane, sequence, delivery, time.perf_counter_ns())

    def confirmed(self, port: PagePort, channel: Channel) -> None:
        sender = self._known(port, channel)
        if sender is None:
            return
        del self._senders[port, channel]
        if sender.delivery.is_ended:
            sender.lane.meter.delivered(time.perf_counter_ns() - sender.opened_ns)
            sender.lane.scheduler.delivered(sender.sequence)
        else:
            problem = "the decode member confirmed what was not sent"
            sender.lane.meter.not_delivered()
            sender.lane.scheduler.give_up(sender.sequence, "handoff", problem)

    def lost(self, port: PagePort, channel: Channel, problem: str) -> None:
        sender = self._known(port, channel)
        if sender is not None:
            del self._senders[port, channel]
            sender.lane.meter.not_delivered()
            sender.lane.scheduler.give_up(sender.sequence, "handoff", problem)

    def lose(self, port: PagePort, problem: str) -> bool:
        """Give up all that goes out through a port; return whether anything did."""
        lost = [key for key in self._senders if key[0] is port]
        for key in lost:
            self.lost(*key, problem)
        return bool(lost)

    def push(self, now_s: float) -> bool:
        """Send what is ready; return whether anything was."""
        num_bytes, has_sent = 0, False
        for key, sender in list(self._senders.items()):
            if self._known(*key) is None:
                continue
            try:
                num_sent = self._push_pages(sender, num_bytes, now_s)
                has_sent |= bool(num_sent) or self._end(sender)
            except Exception as error:
                # confined to its sequence, as a step's is
                self._fail(sender.lane, sender.sequence, "internal", error)
                has_sent = True
            else:
                num_bytes += num_sent
        return has_sent

    def _checked(self, lane: Lane, sequence: Sequence, target: HandoffTarget) -> CacheName:
        """Return the format of the target's pages; raise `ValueError` where it cannot be served."""
        if isinstance(sequence.state, Waiting):
            raise ValueError("the prompt is still in the queue")
        cache = next((name for name in SERVED_FORMATS if name == target.cache_format), None)
        if cache is None or lane.wire.sent_bytes(cache) is None:
            kept = lane.member("prefill").spec.cache
            raise ValueError(
                f"pages of {kept!r} cannot be sent as {target.cache_format!r}: "
                "no member of this node converts them"
            )
        num_pages = pages_for(sequence.num_prompt)
        num_named, rest = divmod(len(target.pages), 16)
        if rest or target.first_page < 0 or target.first_page + num_named != num_pages:
            raise ValueError(
                f"{num_named} pages from {target.first_page} on are reserved for a prompt of {num_pages}"
            )
        return cache

    def _known(self, port: PagePort, channel: Channel) -> _Sender | None:
        """Return the sender of a channel, unless the sequence has ended or goes elsewhere."""
        sender = self._senders.get((port, channel))
        if sender is not None and sender.sequence.delivery is not sender.delivery:
            del self._senders[port, channel]
            return None
        return sender

    def _push_pages(self, sender: _Sender, num_bytes: int, now_s: float) -> int:
        """Send pages that are complete; return their bytes."""
        sequence, delivery = sender.sequence, sender.delivery
        wire = sender.lane.wire
        first = delivery.next_page
        num_ready = pages_for(sequence.num_deliverable) - first
        if num_ready <= 0:
            return 0
        page_bytes = wire.sent_bytes(delivery.cache)
        assert page_bytes is not None
        allowed = (self._max_bytes - num_bytes) // page_bytes
        if not num_bytes:
            allowed = max(allowed, 1)
        end = first + min(num_ready, allowed, delivery.port.room_for(delivery.channel))
        if end <= first:
            return 0
        held = sequence.held
        num_tokens = min(end * PAGE_TOKENS, sequence.num_deliverable)
        departure = Departure(held.lease, held.owner, first, num_tokens)
        pages, fault = wire.to_wire(departure, delivery.cache)
        if not pages:
            self._distrust(sender, fault, now_s)
            return page_bytes
        for page in pages:
            header = self._header(sender, page)
            delivery.port.push(delivery.channel, header, page.data)
        delivery.next_page = end
        delivery.num_bytes += len(pages) * page_bytes
        sender.lane.meter.sent(len(pages), len(pages) * page_bytes)
        return len(pages) * page_bytes

    def _header(self, sender: _Sender, page: WirePage) -> PageHeader:
        delivery = sender.delivery
        ref = delivery.refs[page.logical_page - delivery.first_page]
        digest = sender.lane.wire.bind(page.digest, delivery.handoff, page.logical_page, ref.tag)
        return PageHeader(
            handoff=delivery.handoff,
            logical_page=page.logical_page,
            index=ref.index,
            tag=ref.tag,
            num_tokens=page.num_tokens,
            digest=digest,
            num_bytes=page.data.nbytes,
        )

    def _end(self, sender: _Sender) -> bool:
        """Say that all has been sent, once it has."""
        sequence, delivery = sender.sequence, sender.delivery
        is_done = isinstance(sequence.state, Delivering) and not delivery.is_ended
        if not is_done or delivery.next_page < pages_for(sequence.num_prompt):
            return False
        delivery.is_ended = True
        delivery.port.end(delivery.channel, sequence.ending())
        return True

    def _fail(self, lane: Lane, sequence: Sequence, reason: str, error: Exception) -> None:
        told = sequence.about()
        _log.error("%s: pages could not be sent", lane.name, exc_info=error, extra=told)
        lane.meter.not_delivered()
        problem = f"pages could not be sent ({type(error).__name__})"
        lane.scheduler.give_up(sequence, reason, problem)

    def _distrust(self, sender: _Sender, fault: int, now_s: float) -> None:
        incident = handoff_incident(
            sender.sequence,
            "hand-off read",
            logical_page=logical_page(fault),
            found=found_of(fault),
            now_s=now_s,
        )
        sender.lane.meter.not_delivered()
        sender.lane.scheduler.distrust(sender.sequence, incident, is_kept=True)
