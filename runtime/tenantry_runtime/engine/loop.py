"""The step loop of a node: per turn one decode batch of each model, then one prefill chunk in all.

What they bring is told in the same turn, or where they are computed elsewhere in the next
(`flights.py`).

Where pages come and go between pools, a turn begins with what has come and ends with what goes;
`NodeConfig.handoff_bytes` bounds both, and so what they add to a step.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain, count

from msgspec.structs import replace

from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.cache.prefix_keys import pack_keys
from tenantry_runtime.core import Phase
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.pool.messages import (
    Deliver,
    Failed,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    ServedElsewhere,
    Started,
    Step,
    Submit,
)
from tenantry_runtime.pool.page_map import PageMap
from tenantry_runtime.pool.page_port import PagePort
from tenantry_runtime.pool.step_loop import Tell

from .arrivals import Arrival, Arrivals
from .config import CPU_HANDOFF_BYTES
from .deadlines import Deadlines
from .flights import Flights
from .guide import Guide
from .handoffs import Handoffs
from .lane import Lane
from .page_map import page_map_of
from .relay import Relay
from .scheduler import Report
from .sequence import Sequence

PREFIX_INTERVAL_S = 0.5
"""Between two reports of what prefix trees have gained and lost."""
MAX_PREFIX_KEYS = 1 << 14
"""In one message: 128 KiB."""

ARRIVAL_WAIT_S = 0.002
"""For a grammar to be compiled, while no sequence runs: so much later a message may be heard."""

_log = logging.getLogger(__name__)


class EngineLoop:
    """All models of a node. Not thread-safe: one thread submits, cancels and turns."""

    def __init__(
        self,
        lanes: Iterable[Lane],
        *,
        owners: OwnerSlots,
        clock_s: Callable[[], float] = time.time,
        port: PagePort | None = None,
        handoff_bytes: int = CPU_HANDOFF_BYTES,
    ) -> None:
        """`clock_s` gives Unix time in seconds; `port` leads to other nodes."""
        self._lanes = tuple(lanes)
        self._chunk_order = deque(self._lanes)
        self._handoffs = Handoffs(self._lanes, port=port, max_bytes=handoff_bytes)
        self._relay = Relay(self)
        self._deadlines = Deadlines()
        self._owners = owners
        self._clock_s = clock_s
        self._arrivals = Arrivals()
        self._ages = count()
        self._turn = 0
        self._is_fruitless = False
        self._tended: set[str] = set()
        """Names of pools whose pages nobody has used since they were looked after."""
        self._findings: dict[str, tuple[str, ...]] = {}
        self._last_turn_s = self._last_prefixes_s = clock_s()
        self._untold: list[Report] = []
        self._flights = Flights(clock_s=clock_s, tell=self._untold.extend)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self._lanes

    @property
    def is_idle(self) -> bool:
        """Whether a turn has nothing to compute and nothing to say, until somebody says something.

        Sequences may be waiting for pages from elsewhere, or for somebody to take theirs.
        """
        has_work = bool(self._untold or self._arrivals or self._flights)
        has_work |= self._handoffs.is_behind
        return not has_work and (self._is_fruitless or self.is_empty)

    @property
    def is_empty(self) -> bool:
        """Whether there is no sequence."""
        return not self._arrivals and all(lane.scheduler.is_idle for lane in self._lanes)

    def submit(self, submit: Submit) -> None:
        """Queue a sequence. One that cannot run is answered by a `Failed` of the next turn."""
        within_ms = submit.first_token_within_ms
        if self._is_live(submit):
            # nobody could tell the tokens of the two apart
            self.cancel(submit.request_id)
            self._refuse(submit, "internal", "this request id is already in use")
            return
        if within_ms is not None:
            self._deadlines.add(submit.request_id, self._clock_s() + within_ms / 1000)
        if submit.part == "whole" and self._is_split(submit.model):
            self._relay_whole(submit)
        else:
            self.run_part(submit)

    def run_part(self, submit: Submit, *, is_again: bool = False) -> None:
        """Queue what of a sequence one pool's members do.

        `is_again`: it was let in before it was preempted, and ends like what runs, whatever comes new.
        """
        self._is_fruitless = False
        lane = self._host(submit)
        if lane is None:
            what = submit.model if submit.part == "whole" else f"{submit.part} of {submit.model}"
            self._refuse(submit, "internal", f"this node does not serve {what!r}")
        elif refusal := lane.refusal(submit):
            self._untold.append(refusal)
        elif not is_again and lane.scheduler.incidents.are_too_many(self._clock_s()):
            self._refuse(submit, "capacity", "the node takes no work after too many faults")
        elif submit.constraint is not None:
            is_let_in = is_again or submit.part == "decode"
            if not is_let_in and not self._arrivals.has_room(submit.tenant):
                self._refuse(submit, "capacity", "too many grammars of the tenant wait")
                return
            arrival = Arrival(submit, is_again, lane.guides.guide, self._clock_s())
            self._arrivals.add(arrival)
        else:
            self._enqueue(lane, submit, queued_s=self._clock_s(), is_again=is_again)

    def deliver(self, deliver: Deliver) -> None:
        """Send a prompt's pages to the decode member that has reserved some for it."""
        self._is_fruitless = False
        problem = self._handoffs.deliver(deliver)
        # it may have been refused, and its sequence may have been the last
        self._gather_reports()
        if problem is not None:
            name = deliver.request_id
            self.cancel_parts(name)
            self._untold.append(Failed(request_id=name, reason="handoff", message=problem))

    def served_elsewhere(self, message: ServedElsewhere) -> None:
        """Take account of what other members of a pool have given; one of another pool is ignored."""
        now_s = self._clock_s()
        for lane in self._lanes:
            lane.exchange.hear(message, now_s)

    def cancel(self, request_id: str) -> None:
        """Forget a sequence and release all it holds; an unknown id is ignored."""
        self._deadlines.drop(request_id)
        self._relay.forget(request_id)
        self.cancel_parts(request_id)

    def cancel_parts(self, request_id: str) -> None:
        self._is_fruitless = False
        # its id may be used again, and nobody could tell of whom they are
        self._untold[:] = [told for told in self._untold if told.request_id != request_id]
        self._arrivals.drop(request_id)
        for lane in self._lanes:
            lane.scheduler.cancel(request_id)

    def turn(self, tell_ahead: Tell | None = None) -> list[NodeMessage]:
        """Compute one step and return what there is to tell.

        `tell_ahead` hears, before that is computed, which prompts begin and which have pages reserved:
        the edge and the other member do their part meanwhile.
        """
        now_s = self._last_turn_s = self._clock_s()
        self._turn += 1
        self._end_late(now_s)
        self._take_arrivals()
        has_heard = self._handoffs.take(now_s)
        if self.is_empty:
            # they are of sequences that have ended
            self.settle()
        if self.is_empty and not self._untold and not has_heard:
            for lane in self._lanes:
                self._look_after_pages(lane)
            return self._told_prefixes(now_s)
        for lane in self._lanes:
            self._launch_batch(lane, now_s, tell_ahead)
        self._launch_chunk(now_s, tell_ahead)
        self._tended -= {lane.name for lane in self._lanes if lane.scheduler.num_admitted}
        # first tokens that hand-offs have brought come before those of this turn's steps
        self._gather_reports()
        has_computed = bool(self._flights)
        self._flights.land()
        has_pushed = self._handoffs.push(now_s)
        self._gather_reports()
        is_at_work = self._help_who_waits() or has_heard or has_pushed or bool(self._untold)
        self._is_fruitless = not is_at_work and not has_computed
        return [*self._told(now_s), *self._told_prefixes(now_s)]

    def settle(self) -> None:
        """Wait for all steps that are under way, and learn what they bring; the next turn tells it."""
        for lane in self._lanes:
            self._flights.settle(lane)

    def statistics(self) -> NodeStatistics:
        schedulers = [lane.scheduler.statistics() for lane in self._lanes]
        logs = [lane.scheduler.incidents for lane in self._lanes]
        now_s = self._clock_s()
        services = (lane.exchange.report(now_s) for lane in self._lanes)
        tenants = self._owners.tenants
        # a model's decode member comes last, and is the one that free pages are counted of
        return NodeStatistics(
            loop_turn_ns=round(self._last_turn_s * 1e9),
            num_running=sum(scheduler.num_running for scheduler in schedulers),
            num_waiting=sum(scheduler.num_waiting for scheduler in schedulers),
            num_free_pages={
                lane.model: lane.pool.num_free + lane.prefixes.num_evictable for lane in self._lanes
            },
            num_incidents=sum(log.num_incidents for log in logs),
            incidents=tuple(incident for log in logs for incident in log.kept),
            num_quarantined_pages={
                model: sum(
                    lane.pool.statistics().num_quarantined
                    for lane in self._lanes
                    if lane.model == model
                )
                for model in dict.fromkeys(lane.model for lane in self._lanes)
            },
            loads=tuple(load for lane in self._lanes for load in lane.loads()),
            audit_findings=tuple(chain.from_iterable(self._findings.values())),
            services=tuple(report for report in services if report is not None),
            pools=tuple(lane.meter.report(lane, tenants) for lane in self._lanes),
        )

    def describe(self) -> tuple[MemberDescription, ...]:
        return tuple(member.describe() for lane in self._lanes for member in lane.members.values())

    def prefix_keys(self) -> tuple[PrefixChanges, ...]:
        """Return all that can be found in prefix trees, for somebody who knows nothing of it.

        What follows from here on are changes of that. O(pages).
        """
        messages = []
        for lane in self._lanes:
            keys = lane.prefixes.keys()
            lane.prefixes.journal.clear()
            for start in range(0, max(len(keys), 1), MAX_PREFIX_KEYS):
                part = keys[start : start + MAX_PREFIX_KEYS]
                messages.append(_changes(lane, part, [], is_whole=not start))
        return tuple(messages)

    def page_maps(self) -> tuple[PageMap, ...]:
        """Return a map of every pool's pages. O(pages)."""
        tenants = self._owners.tenants
        return tuple(page_map_of(lane, tenants) for lane in self._lanes)

    def audit(self) -> list[str]:
        """Walk the bookkeeping of every page; return what does not add up."""
        return [
            f"{lane.name}: {finding}"
            for lane in self._lanes
            for finding in (*lane.pool.audit(), *lane.prefixes.audit())
        ]

    def close(self) -> None:
        """End all sequences."""
        self._arrivals.close()
        for lane in self._lanes:
            lane.scheduler.cancel_all()
        self.settle()
        self._untold.clear()

    def _end_late(self, now_s: float) -> None:
        """Fail what should have had its first token by now, whether it waits or is at work."""
        if not (passed := self._deadlines.take_passed(now_s)):
            return
        # what is under way was launched in time
        self.settle()
        begun = {told.request_id for told in self._untold if isinstance(told, SequenceTokens)}
        for request_id in passed:
            if request_id in begun:
                continue
            self.cancel(request_id)
            message = "it had no token in the time that its client would wait"
            self._untold.append(Failed(request_id=request_id, reason="deadline", message=message))

    def _help_who_waits(self) -> bool:
        """End quarantine where what waits may need every page; return whether it was tried."""
        is_tried = False
        for lane in self._lanes:
            scheduler = lane.scheduler
            is_waiting = not scheduler.is_idle and not scheduler.num_admitted
            is_waiting &= not self._flights.of(lane)
            if is_waiting and lane.pool.statistics().num_quarantined:
                is_tried |= self._look_after_pages(lane)
        return is_tried

    def _look_after_pages(self, lane: Lane) -> bool:
        """Audit a pool's pages, once per idle time; what was quarantined goes back where nothing is wrong."""
        if lane.name in self._tended:
            return False
        self._tended.add(lane.name)
        self._findings[lane.name] = tuple(f"{lane.name}: {each}" for each in lane.upkeep.run())
        for finding in self._findings[lane.name]:
            _log.error("audit: %s", finding)
        return True

    def _relay_whole(self, submit: Submit) -> None:
        """Send a sequence through both parts, unless the second is bound to be refused."""
        decode = replace(submit, part="decode")
        lane = self._host(decode)
        if lane is not None and (refusal := lane.refusal(decode)):
            self._untold.append(refusal)
        else:
            self._relay.begin(submit, self._clock_s())

    def _host(self, submit: Submit) -> Lane | None:
        """Return the pool whose members run this part of a sequence."""
        return next(
            (x for x in self._lanes if x.model == submit.model and x.hosts(submit.part)), None
        )

    def _is_split(self, model: str) -> bool:
        """Whether both members of a model are here, each with a pool of its own."""
        mine = [lane for lane in self._lanes if lane.model == model]
        return len(mine) > 1

    def _is_live(self, submit: Submit) -> bool:
        """Whether the id is in use: two parts of one sequence may be here, each once."""
        name, part = submit.request_id, submit.part
        if name in self._relay:
            return True
        live = (lane.scheduler.sequence(name) for lane in self._lanes)
        parts = [s.submit.part for s in live if s is not None] + self._arrivals.parts(name)
        return any({part, other} != _BOTH_PARTS for other in parts)

    def _take_arrivals(self) -> None:
        """Queue those whose grammars are compiled; wait a little where there is nothing else to do."""
        is_free = not self._untold and all(lane.scheduler.is_idle for lane in self._lanes)
        for ready in self._arrivals.take(ARRIVAL_WAIT_S if is_free else 0):
            submit, queued_s = ready.arrival.submit, ready.arrival.queued_s
            lane = self._host(submit)
            assert lane is not None, "a lane does not go"
            if ready.problem:
                self._refuse(submit, "internal", ready.problem)
                continue
            is_again, guide = ready.arrival.is_again, ready.guide
            self._enqueue(lane, submit, queued_s=queued_s, is_again=is_again, guide=guide)

    def _enqueue(
        self,
        lane: Lane,
        submit: Submit,
        *,
        queued_s: float,
        is_again: bool,
        guide: Guide | None = None,
    ) -> None:
        sequence = Sequence(
            submit,
            arrival=next(self._ages),
            owners=self._owners,
            queued_s=queued_s,
            guide=guide,
        )
        try:
            lane.scheduler.add(sequence, is_again=is_again)
        except CapacityExceeded as error:
            self._refuse(submit, "capacity", str(error))

    def _refuse(self, submit: Submit, reason: str, message: str) -> None:
        failed = Failed(request_id=submit.request_id, reason=reason, message=message)
        self._untold.append(failed)

    def _launch_batch(self, lane: Lane, now_s: float, tell_ahead: Tell | None) -> None:
        if lane.scheduler.must_settle:
            self._flights.settle(lane)
        plan = lane.scheduler.plan("decode", now_s)
        self._tell_ahead(lane, tell_ahead)
        if plan is not None:
            self._flights.launch(lane, plan)

    def _launch_chunk(self, now_s: float, tell_ahead: Tell | None) -> None:
        """Launch one chunk of the first lane that has any; lanes take turns."""
        for lane in tuple(self._chunk_order):
            self._chunk_order.rotate(-1)
            plan = lane.scheduler.plan("prefill", now_s)
            self._tell_ahead(lane, tell_ahead)
            if plan is not None:
                self._flights.launch(lane, plan)
                return

    def _tell_ahead(self, lane: Lane, tell: Tell | None) -> None:
        """Tell what a plan has begun, unless it goes on here; either is the first that is said of a part."""
        for report in lane.scheduler.take_reports():
            is_for_others = report.request_id not in self._relay
            if tell is not None and is_for_others and isinstance(report, Started | Reserved):
                tell(report)
            else:
                self._untold.append(report)

    def _gather_reports(self) -> None:
        for lane in self._lanes:
            self._untold.extend(lane.scheduler.take_reports())

    def _told(self, now_s: float) -> list[NodeMessage]:
        reports: list[Report] = []
        while self._untold:
            # hearing of one may make others void, and bring new ones
            report = self._untold.pop(0)
            if (told := self._relay.hear(report, now_s)) is not None:
                reports.append(told)
                if not isinstance(told, Started | Reserved):
                    # its first token, or its end
                    self._deadlines.drop(told.request_id)
        sequences = [report for report in reports if isinstance(report, SequenceTokens)]
        others: list[NodeMessage] = [r for r in reports if not isinstance(r, SequenceTokens)]
        if not sequences:
            return others
        return [Step(step=self._turn, sequences=sequences), *others]

    def _told_prefixes(self, now_s: float) -> list[NodeMessage]:
        if now_s - self._last_prefixes_s < PREFIX_INTERVAL_S:
            return []
        self._last_prefixes_s = now_s
        messages: list[NodeMessage] = []
        for lane in self._lanes:
            if lane.prefixes.journal:
                changes = lane.prefixes.journal.take(MAX_PREFIX_KEYS)
                messages.append(_changes(lane, changes.added, changes.removed))
        return messages


def _changes(
    lane: Lane, added: list[int], removed: list[int], *, is_whole: bool = False
) -> PrefixChanges:
    # where members share their pages, it is the prefill member that is chosen by them
    phase: Phase = "prefill" if "prefill" in lane.members else "decode"
    return PrefixChanges(
        model=lane.model,
        phase=phase,
        added=pack_keys(added),
        removed=pack_keys(removed),
        is_whole=is_whole,
    )


_BOTH_PARTS = {"prefill", "decode"}
