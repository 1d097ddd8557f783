"""The steps of a node that are launched and have not been collected, in their order.

| a lane that | has its steps collected |
|---|---|
| computes where the loop runs | in the turn that launches them: they are computed by then |
| runs ahead | in the next turn, after that has launched its own: the device never waits for the host |
| must settle | before it plans again |

Where sampling waits for something that the host finds out (masks of grammars), that takes what the
steps before have sampled: those are collected in the middle of the launch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from .lane import Lane
from .member import StepInFlight
from .plan import StepPlan, StepResult
from .scheduler import Report

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Flight:
    lane: Lane
    plan: StepPlan
    handle: StepInFlight
    turn: int
    began_ns: int
    """On the monotonic clock."""
    launch_ns: int
    """What launching it took: where the loop runs, all of it."""


@dataclass(frozen=True, slots=True)
class _Crash:
    """A step that could not be launched: it fails in its turn, after the steps before it."""

    error: Exception

    def collect(self) -> StepResult:
        raise self.error


class Flights:
    """Launches steps, and brings what comes of them to their schedulers."""

    def __init__(
        self, *, clock_s: Callable[[], float], tell: Callable[[Iterable[Report]], None]
    ) -> None:
        """`clock_s` gives Unix time in seconds; `tell` hears what there is to tell of a step."""
        self._clock_s = clock_s
        self._tell = tell
        self._flights: list[_Flight] = []
        self._turn = 0
        self._collected_ns = 0
        """When the last step had come back, on the monotonic clock."""

    def __len__(self) -> int:
        return len(self._flights)

    def of(self, lane: Lane) -> list[_Flight]:
        return [flight for flight in self._flights if flight.lane is lane]

    def launch(self, lane: Lane, plan: StepPlan) -> None:
        began_ns = time.perf_counter_ns()
        earlier = [flight.handle for flight in self.of(lane)]
        try:
            handle = lane.member(plan.phase).launch(
                plan, earlier=earlier, settle=partial(self.settle, lane)
            )
        except Exception as error:
            handle = _Crash(error)
        launch_ns = time.perf_counter_ns() - began_ns
        self._flights.append(_Flight(lane, plan, handle, self._turn, began_ns, launch_ns))

    def settle(self, lane: Lane) -> None:
        """Collect all of a lane's steps."""
        for flight in self.of(lane):
            self._collect(flight)

    def land(self) -> None:
        """Collect what is due at the end of a turn."""
        for flight in tuple(self._flights):
            if flight.turn < self._turn or not flight.lane.runs_ahead:
                self._collect(flight)
        self._turn += 1

    def _collect(self, flight: _Flight) -> None:
        self._flights.remove(flight)
        lane, plan = flight.lane, flight.plan
        asked_ns = time.perf_counter_ns()
        try:
            result = flight.handle.collect()
        except Exception as error:
            self._tell(_failed(lane, plan, error))
            return
        now_ns = time.perf_counter_ns()
        if lane.runs_ahead:
            # the device was at the one before till then
            took_ns = now_ns - max(flight.began_ns, self._collected_ns)
        else:
            took_ns = flight.launch_ns + now_ns - asked_ns
        self._collected_ns = now_ns
        lane.meter.stepped(plan, took_ns)
        self._tell(lane.scheduler.commit(plan, result, self._clock_s()))


def _failed(lane: Lane, plan: StepPlan, error: Exception) -> Iterable[Report]:
    """Confine an error to the sequences of its step: the loop serves everybody else."""
    # a record is about one request or about none
    told = plan.entries[0].sequence.about() if len(plan.entries) == 1 else None
    _log.error("%s: a %s step failed", lane.name, plan.phase, exc_info=error, extra=told)
    lane.meter.crashed(plan.phase)
    problem = f"the model's {plan.phase} step failed ({type(error).__name__})"
    return lane.scheduler.fail(plan, problem)
