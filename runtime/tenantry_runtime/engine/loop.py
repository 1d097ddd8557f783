"""The step loop of a node: per turn one decode batch of each model, then one prefill chunk in all."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from tenantry_runtime.cache.owners import OwnerSlots
from tenantry_runtime.errors import CapacityExceeded
from tenantry_runtime.pool.messages import (
    Failed,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    SequenceTokens,
    Step,
    Submit,
)

from .lane import Lane
from .member import StepInFlight
from .plan import StepPlan, StepResult
from .sequence import Sequence

NUM_TOLD = 8
"""Incidents of each model in the statistics."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Flight:
    lane: Lane
    plan: StepPlan
    handle: StepInFlight


@dataclass(frozen=True, slots=True)
class _Crash:
    """A step that could not be launched: it fails in its turn, after the steps before it."""

    error: Exception

    def collect(self) -> StepResult:
        raise self.error


class EngineLoop:
    """All models of a node. Not thread-safe: one thread submits, cancels and turns."""

    def __init__(
        self,
        lanes: Iterable[Lane],
        *,
        owners: OwnerSlots,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        """`clock_s` gives Unix time in seconds."""
        self._lanes = {lane.model: lane for lane in lanes}
        self._chunk_order = deque(self._lanes.values())
        self._owners = owners
        self._clock_s = clock_s
        self._arrivals = count()
        self._turn = 0
        self._is_tended = False
        self._findings: tuple[str, ...] = ()
        self._last_turn_s = clock_s()
        self._untold: list[SequenceTokens | Failed] = []

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(self._lanes.values())

    @property
    def is_idle(self) -> bool:
        """Whether a turn has nothing to compute and nothing to say."""
        return not self._untold and all(lane.scheduler.is_idle for lane in self._lanes.values())

    def submit(self, submit: Submit) -> None:
        """Queue a sequence. One that cannot run is answered by a `Failed` of the next turn."""
        lane = self._lanes.get(submit.model)
        if lane is None:
            self._refuse(submit, "internal", f"this node does not serve {submit.model!r}")
        elif self._is_live(submit.request_id):
            # nobody could tell the tokens of the two apart
            self.cancel(submit.request_id)
            self._refuse(submit, "internal", "this request id is already in use")
        elif refusal := lane.refusal(submit):
            self._untold.append(refusal)
        elif lane.scheduler.incidents.are_too_many(self._clock_s()):
            self._refuse(submit, "capacity", "the node takes no work after too many faults")
        else:
            self._enqueue(lane, submit)

    def cancel(self, request_id: str) -> None:
        """Forget a sequence and release all it holds; an unknown id is ignored."""
        for lane in self._lanes.values():
            lane.scheduler.cancel(request_id)

    def turn(self) -> list[NodeMessage]:
        """Compute one step and return what there is to tell."""
        now_s = self._last_turn_s = self._clock_s()
        self._turn += 1
        if self.is_idle:
            self._look_after_pages()
            return []
        self._is_tended = False
        decoding = [self._launch_batch(lane, now_s) for lane in self._lanes.values()]
        for flight in (*decoding, self._launch_chunk(now_s)):
            if flight is not None:
                self._collect(flight)
        return self._told()

    def statistics(self) -> NodeStatistics:
        schedulers = [lane.scheduler.statistics() for lane in self._lanes.values()]
        logs = [lane.scheduler.incidents for lane in self._lanes.values()]
        return NodeStatistics(
            loop_turn_ns=round(self._last_turn_s * 1e9),
            num_running=sum(scheduler.num_running for scheduler in schedulers),
            num_waiting=sum(scheduler.num_waiting for scheduler in schedulers),
            num_free_pages={
                model: lane.decode.pool.num_free + lane.prefixes.num_unread
                for model, lane in self._lanes.items()
            },
            num_incidents=sum(log.num_incidents for log in logs),
            incidents=tuple(incident for log in logs for incident in log.kept[-NUM_TOLD:]),
            num_quarantined_pages={
                model: lane.decode.pool.statistics().num_quarantined
                for model, lane in self._lanes.items()
            },
            audit_findings=self._findings,
        )

    def describe(self) -> tuple[MemberDescription, ...]:
        return tuple(
            member.describe()
            for lane in self._lanes.values()
            for member in (lane.prefill, lane.decode)
        )

    def audit(self) -> list[str]:
        """Walk the bookkeeping of every page; return what does not add up."""
        return [
            f"{model}: {finding}"
            for model, lane in self._lanes.items()
            for finding in (*lane.decode.pool.audit(), *lane.prefixes.audit())
        ]

    def close(self) -> None:
        """End all sequences."""
        for lane in self._lanes.values():
            lane.scheduler.cancel_all()
        self._untold.clear()

    def _look_after_pages(self) -> None:
        """Audit all pages, once per idle time; what was quarantined goes back where nothing is wrong."""
        if self._is_tended:
            return
        self._is_tended = True
        self._findings = tuple(
            f"{model}: {finding}"
            for model, lane in self._lanes.items()
            for finding in lane.upkeep.run()
        )
        for finding in self._findings:
            _log.error("audit: %s", finding)

    def _is_live(self, request_id: str) -> bool:
        return any(request_id in lane.scheduler for lane in self._lanes.values())

    def _enqueue(self, lane: Lane, submit: Submit) -> None:
        sequence = Sequence(
            submit, arrival=next(self._arrivals), owners=self._owners, queued_s=self._clock_s()
        )
        try:
            lane.scheduler.add(sequence)
        except CapacityExceeded as error:
            self._refuse(submit, "capacity", str(error))

    def _refuse(self, submit: Submit, reason: str, message: str) -> None:
        failed = Failed(request_id=submit.request_id, reason=reason, message=message)
        self._untold.append(failed)

    def _launch_batch(self, lane: Lane, now_s: float) -> _Flight | None:
        plan = lane.scheduler.plan("decode", now_s)
        return self._launch(lane, plan) if plan is not None else None

    def _launch_chunk(self, now_s: float) -> _Flight | None:
        """Launch one chunk of the first lane that has any; lanes take turns."""
        for lane in tuple(self._chunk_order):
            self._chunk_order.rotate(-1)
            plan = lane.scheduler.plan("prefill", now_s)
            if plan is not None:
                return self._launch(lane, plan)
        return None

    def _launch(self, lane: Lane, plan: StepPlan) -> _Flight:
        try:
            handle = lane.member(plan.phase).launch(plan)
        except Exception as error:
            handle = _Crash(error)
        return _Flight(lane, plan, handle)

    def _collect(self, flight: _Flight) -> None:
        try:
            result = flight.handle.collect()
        except Exception as error:
            self._fail(flight.lane, flight.plan, error)
            return
        self._untold.extend(flight.lane.scheduler.commit(flight.plan, result, self._clock_s()))

    def _fail(self, lane: Lane, plan: StepPlan, error: Exception) -> None:
        """Confine an error to the sequences of its step: the loop serves everybody else."""
        _log.error("%s: a %s step failed", lane.model, plan.phase, exc_info=error)
        problem = f"the model's {plan.phase} step failed ({type(error).__name__})"
        self._untold.extend(lane.scheduler.fail(plan, problem))

    def _told(self) -> list[NodeMessage]:
        reports, self._untold = self._untold, []
        sequences = [report for report in reports if isinstance(report, SequenceTokens)]
        failures: list[NodeMessage] = [report for report in reports if isinstance(report, Failed)]
        if not sequences:
            return failures
        return [Step(step=self._turn, sequences=sequences), *failures]
