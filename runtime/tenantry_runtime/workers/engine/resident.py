"""An isolate that has a version, and the invocations in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import anyio

from tenantry_runtime.workers.interface import Bindings, Record
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerVersion

from .allowance import CpuAllowance
from .lives import Blank
from .running import Running
from .silence import Silence
from .verdict import MEMORY_ERRORS, Verdict, blocked, disobeyed, exceeded_cpu, exceeded_wall

STOP_GRACE_S = 1.0
"""That an invocation has to end when it is told to, before its isolate is ended. One that would end
needs a millisecond; one that waits in a call of C or ignores it would never."""
ANSWER_S = 0.25
"""That an isolate which is about to be ended has to say what it does."""
BLOCKED_S = 30.0
"""That an isolate may wait without reading what it is sent, as in `time.sleep`."""
BLOCKED_SHARE = 0.05
"""Of a CPU: one that uses more does not wait; its CPU time is limited."""
MAX_LOOK_S = 0.25
"""Between two looks, whatever CPU time is left."""
MIN_READ_S = 0.0005
"""Between two readings of the CPU time for the sake of sharing it: of a process that runs on another CPU
one takes microseconds. What invocations are said to have used is as coarse as that."""
SATURATED = 0.9
"""Of one CPU, over at least `MAX_LOOK_S`: an isolate has one thread that runs Python."""
NUM_CPUS = os.cpu_count() or 1


class Landlord(Protocol):
    """Hears of a resident's changes; the engine."""

    def became_busy(self, resident: Resident) -> None:
        """An invocation runs where none did."""
        ...

    def became_idle(self, resident: Resident) -> None:
        """Nothing runs in it any more."""
        ...

    def became_saturated(self, resident: Resident) -> None:
        """Several invocations run in it, and it has no CPU left for more."""
        ...

    def was_held_up(self, resident: Resident) -> None:
        """It does not read what it is sent any more, or does again."""
        ...

    def freed(self, resident: Resident) -> None:
        """An invocation needs its place no more."""
        ...

    def concluded(self, record: Record) -> None:
        """All is known of an invocation."""
        ...

    def ended(self, resident: Resident) -> None:
        """Its process has ended, or is out of reach."""
        ...


class Resident:
    """One isolate, from the beginning of its load to its end.

    It judges what runs in it: an invocation that is over its time is stopped, and the whole isolate is
    condemned when it has used more CPU time than was admitted to it, waits and lets nothing else go on, or
    when none is left but those that do not obey. What the verdict is about is said of the invocation that
    the isolate names as its cause, or of those that can be; others learn that it was not them.

    | an invocation | is among |
    |---|---|
    | whose response has not ended, or was not read to its end | `running` |
    | that only `wait_until` keeps | `lingering` |
    | that was told to end | `stopping` |
    """

    def __init__(
        self,
        version: WorkerVersion,
        blank: Blank,
        landlord: Landlord,
        *,
        now: Callable[[], float],
        unix_ms: Callable[[], int],
        load_cpu_ms: float,
    ) -> None:
        confined = blank.confined
        self.version = version
        self.confined = confined
        self.outside = blank.outside
        self._landlord = landlord
        self._now = now
        self._unix_ms = unix_ms
        self.num_taken = 0
        self.is_leaving = False
        self.is_saturated = False
        self.is_held_up = False
        self.is_retired = False
        """Whether it was ended because nothing ran in it and nothing was to."""
        self.verdict: Verdict | None = None
        """Why the isolate has ended, or is about to; of those that none was said of before."""
        self.buried = anyio.Event()
        """Set when it has ended and it is known why."""
        cpu_ns = confined.process.cpu_ns()
        self.allowance = CpuAllowance(cpu_ns)
        # the load is the first that runs in it
        self._limit = ("the import", load_cpu_ms)
        self._load = self.allowance.admit()
        self.num_open = 0
        """Invocations that have not been concluded."""
        # oldest first: those whose time is over first
        self.running: dict[Running, None] = {}
        self.lingering: dict[Running, None] = {}
        self.stopping: dict[Running, None] = {}
        self._unburied: list[Running] = []
        """Those that ended with the isolate, before it is known why."""
        self._silence = Silence(confined)
        self._accusation: Verdict | None = None
        self._answer_s: float | None = None
        """Until when it may say for what it is ended; None: it is for nothing."""
        self._read_s = now()
        self._window: tuple[float, int] = (self._read_s, cpu_ns)
        self.next_look_s = 0.0

    def end_load(self) -> float:
        """Hold it to its version's limits from now on; return the load's CPU time in milliseconds."""
        self.allowance.read(self.confined.process.cpu_ns())
        self._limit = ("the worker", float(self.version.limits.cpu_ms))
        return self.allowance.end(self._load) / 1e6

    def admit(
        self, record: Record, bindings: Bindings, *, began_s: float, num_moves: int = 0
    ) -> Running:
        """Let an invocation begin, in a place that was taken for it."""
        self._read()
        if not self.num_open:
            self.next_look_s = 0.0
            self._window = (self._read_s, self.allowance.read_ns)
            self._landlord.became_busy(self)
        self.num_open += 1
        ticket = self.allowance.admit()
        # time in which it waited for an isolate is not the worker's
        deadline_s = self._now() + self.version.limits.wall_s
        running = Running(
            self,
            record,
            bindings,
            ticket=ticket,
            began_s=began_s,
            deadline_s=deadline_s,
            num_moves=num_moves,
        )
        self.running[running] = None
        if self.version.isolation == "request":
            self.is_leaving = True
        return running

    def stop(self, running: Running, verdict: Verdict) -> None:
        """End one invocation, `wait_until` included; the isolate with it if it does not obey."""
        if running in self.stopping:
            return
        running.judge(verdict)
        self.running.pop(running, None)
        self.lingering.pop(running, None)
        if not running.is_finished:
            self.stopping[running] = None
            running.deadline_s = self._now() + STOP_GRACE_S
        self.confined.isolate.stop(running)

    def leave(self, running: Running) -> None:
        """Hear that the response has ended, or that nobody waits for it any more."""
        running.is_left = True
        was_running = self.running.pop(running, running) is None
        if running.is_finished:
            self._conclude(running)
        elif was_running:
            running.deadline_s = self._now() + self.version.limits.wait_until_s
            self.lingering[running] = None

    def withdraw(self, running: Running) -> None:
        """Forget an invocation that the isolate never began: another will."""
        self.running.pop(running, None)
        if self.confined.isolate.ending is not None:
            self.is_leaving = True
        self._forget()

    def finish(self, running: Running) -> None:
        """Hear that the isolate has nothing of an invocation any more."""
        self._read()
        running.record.cpu_ms = self.allowance.end(running.ticket) / 1e6
        running.is_orphan = self.confined.isolate.ending is not None
        self.lingering.pop(running, None)
        self.stopping.pop(running, None)
        errors = running.record.errors
        if errors and any(error.name in MEMORY_ERRORS for error in errors):
            # what filled it may still be there
            self.is_leaving = True
        if running.is_left:
            self._conclude(running)
        self._landlord.freed(self)
        self._leave_if_empty()

    def used_while_idle_ns(self) -> int:
        """Return the CPU time that it has used since the last invocation had ended."""
        return self.confined.process.cpu_ns() - self.allowance.read_ns

    def retire(self) -> None:
        """Take no more invocations, and end when none is left."""
        self.is_leaving = True
        self._leave_if_empty()

    def condemn(self, verdict: Verdict, culprits: Collection[Running] = ()) -> None:
        """End the isolate and all that runs in it, for what the culprits did, or for a load."""
        self.is_leaving = True
        if self.verdict is None:
            for running in culprits:
                running.convict(verdict)
            self.verdict = verdict.of_others() if culprits else verdict
        self.confined.process.kill()

    def accuse(self, verdict: Verdict) -> None:
        """End the isolate for its load, when it has said where that is."""
        self._accusation = verdict
        self.next_look_s = 0.0

    def bury(self, verdict: Verdict) -> None:
        """Hear why the isolate ended, unless it was condemned; conclude what ended with it."""
        if self.buried.is_set():
            return
        self.is_leaving = True
        if self.verdict is None:
            self.verdict = verdict
        unburied, self._unburied = self._unburied, []
        for running in unburied:
            running.judge(self.verdict)
            self._report(running)
        self.buried.set()
        self._landlord.ended(self)

    def look(self, now_s: float) -> float:
        """Hold the isolate to its limits; return for how many seconds it cannot break any."""
        if self.verdict is not None:
            return MAX_LOOK_S
        cpu_ns = self.confined.process.cpu_ns()
        self.allowance.read(cpu_ns)
        self._silence.listen(now_s, cpu_ns)
        self._set_held_up(self._silence.is_long)
        left_ns = 1e6 * self._limit[1] - self.allowance.most_ns()
        left_ns = min(left_ns, 1e6 * self._limit[1] - self._silence.used_ns(cpu_ns))
        limits = self.version.limits
        for running in _due(self.running, now_s):
            self.stop(running, exceeded_wall("the worker", limits.wall_s))
        for running in _due(self.lingering, now_s):
            self.stop(running, exceeded_wall("wait_until", limits.wait_until_s))
        late = _due(self.stopping, now_s)
        if not self._judge(now_s, cpu_ns, left_ns, late):
            self._answer_s = None
        self._look_for_saturation(now_s, cpu_ns)
        if self._answer_s is not None:
            return 0.0
        deadlines = [each.deadline_s - now_s for each in self._unfinished() if each not in late]
        return min(max(left_ns, 0.0) / 1e9 / NUM_CPUS, MAX_LOOK_S, *deadlines)

    def _judge(self, now_s: float, cpu_ns: int, left_ns: float, late: list[Running]) -> bool:
        """Condemn the isolate if it has to be, or wait for its last words; return whether it has to."""
        silence = self._silence
        if self._accusation is not None:
            self._prosecute(self._accusation, [], now_s)
            return True
        if left_ns < 0:
            self._prosecute(exceeded_cpu(*self._limit), self._suspects(now_s), now_s)
            return True
        silent_s = silence.seconds(now_s)
        if silent_s >= BLOCKED_S and silence.used_ns(cpu_ns) < BLOCKED_SHARE * 1e9 * silent_s:
            self._prosecute(blocked(BLOCKED_S), self._suspects(now_s), now_s)
            return True
        if not late:
            return False
        # it takes no more, and lives for the others that it has
        self.is_leaving = True
        holder = silence.holder()
        is_held = silence.is_long and holder in late
        if not is_held and len(late) < sum(1 for _ in self._unfinished()):
            return False
        suspect = holder if holder is not None and holder in late else late[0]
        verdict = suspect.verdict or disobeyed()
        if silent_s and verdict.outcome is Outcome.CANCELED:
            verdict = disobeyed()
        self._prosecute(verdict, [suspect], now_s)
        return True

    def _prosecute(self, verdict: Verdict, suspects: list[Running], now_s: float) -> None:
        """End the isolate, when it has said what it does, or can say nothing."""
        place = self._silence.place()
        if place is not None:
            holder = self._silence.holder()
            self.condemn(verdict.at(*place), suspects if holder is None else [holder])
        elif self._answer_s is not None and now_s >= self._answer_s:
            self.condemn(verdict, suspects)
        else:
            self._answer_s = self._answer_s or now_s + ANSWER_S
            self.confined.process.inquire()

    def _suspects(self, now_s: float) -> list[Running]:
        """Return those that can have used the isolate up, for want of its own word."""
        unfinished = sorted(self._unfinished(), key=lambda running: running.ticket)
        silent_s = self._silence.seconds(now_s)
        if not silent_s:
            return unfinished[:1]
        began = [each for each in unfinished if each.admitted_s <= now_s - silent_s]
        return began or unfinished[:1]

    def _unfinished(self) -> Iterable[Running]:
        yield from self.running
        yield from self.lingering
        yield from self.stopping

    def _set_held_up(self, is_held_up: bool) -> None:
        if is_held_up != self.is_held_up:
            self.is_held_up = is_held_up
            self._landlord.was_held_up(self)

    def _read(self) -> None:
        """Share what was used, unless that has just been done."""
        now_s = self._now()
        if now_s - self._read_s >= MIN_READ_S:
            self._read_s = now_s
            self.allowance.read(self.confined.process.cpu_ns())

    def _look_for_saturation(self, now_s: float, cpu_ns: int) -> None:
        since_s, since_ns = self._window
        if now_s - since_s >= MAX_LOOK_S:
            self._window = (now_s, cpu_ns)
            is_full = cpu_ns - since_ns >= SATURATED * 1e9 * (now_s - since_s)
            self.is_saturated = is_full and self.allowance.num_running > 1
            if self.is_saturated:
                self._landlord.became_saturated(self)

    def _conclude(self, running: Running) -> None:
        if running.is_orphan and running.verdict is None:
            if self.verdict is None:
                self._unburied.append(running)
                return
            running.judge(self.verdict)
        self._report(running)

    def _report(self, running: Running) -> None:
        now_ms = self._unix_ms()
        record = running.close_record(now_s=self._now(), now_ms=now_ms)
        if self.outside.lines.has_any:
            record.logs[:0] = self.outside.lines.take(now_ms)
        self._landlord.concluded(record)
        self._forget()

    def _forget(self) -> None:
        self.num_open -= 1
        if not self.num_open:
            self.is_saturated = False
            # whatever has ended has read
            self._set_held_up(False)
            self._landlord.became_idle(self)
        self._leave_if_empty()

    def _leave_if_empty(self) -> None:
        if self.is_leaving and not self.num_open and not self.num_taken:
            self.is_retired = self.verdict is None
            self.confined.process.kill()


def _due(group: Iterable[Running], now_s: float) -> list[Running]:
    """Return the first ones whose time is over."""
    ending = []
    for running in group:
        if running.deadline_s > now_s:
            break
        ending.append(running)
    return ending
