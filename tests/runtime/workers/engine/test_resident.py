"""An isolate and what runs in it are held to their limits, and each invocation gets its reason."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from support.worker_isolates import (
    FakeBindings,
    FakeIsolate,
    a_version,
    an_invocation,
    hello,
    loads,
)
from tenantry_runtime.workers.engine import Confined, Exit, TemplateKey
from tenantry_runtime.workers.engine.lives import Blank
from tenantry_runtime.workers.engine.outside import Outside
from tenantry_runtime.workers.engine.resident import Resident
from tenantry_runtime.workers.engine.running import Running
from tenantry_runtime.workers.engine.verdict import Verdict, of_ending
from tenantry_runtime.workers.interface import ErrorLine, Event, LogLine, Record
from tenantry_runtime.workers.isolate import HeldUp
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerLimits

MS = 1_000_000


class Scene:
    """A resident, its isolate, and all that it tells."""

    def __init__(self, **limits: float) -> None:
        self.now_s = 0.0
        self.version = a_version(limits=msgspec.convert(limits, WorkerLimits))
        self.isolate = FakeIsolate(hello, loads)
        self.process = self.isolate.process
        self.records: list[Record] = []
        self.told: list[str] = []
        blank = Blank(
            TemplateKey(), Confined(isolate=self.isolate, process=self.process), Outside()
        )
        self.resident = Resident(
            self.version,
            blank,
            self,
            now=lambda: self.now_s,
            unix_ms=lambda: 1234,
            load_cpu_ms=100.0,
        )
        self.resident.end_load()

    def begin(self) -> Running:
        self.resident.num_taken += 1
        record = Record(
            version=self.version,
            invocation=an_invocation(),
            event=Event(kind="fetch"),
            started_ms=0,
        )
        return self.resident.admit(record, FakeBindings(), began_s=self.now_s)

    def look(self, *, cpu_ms: float = 0.0) -> float:
        self.process.cpu += int(cpu_ms * MS)
        return self.resident.look(self.now_s)

    def became_busy(self, resident: Resident) -> None:
        self.told.append("busy")

    def became_idle(self, resident: Resident) -> None:
        self.told.append("idle")

    def was_held_up(self, resident: Resident) -> None:
        self.told.append("held up" if resident.is_held_up else "reads")

    def hold(self, running: Running | None, path: str = "entry.py", line: int = 7) -> None:
        """Let the isolate say what keeps it."""
        num_signs = self.isolate.num_frames
        self.isolate.held_up = HeldUp(running, path, line, num_signs)

    def end_silence(self) -> None:
        """Give the isolate the time that it has for its last words."""
        self.now_s += 0.25
        self.look()

    def became_saturated(self, resident: Resident) -> None:
        self.told.append("saturated")

    def freed(self, resident: Resident) -> None:
        resident.num_taken -= 1

    def concluded(self, record: Record) -> None:
        self.records.append(record)

    def ended(self, resident: Resident) -> None:
        self.told.append("ended")


def bury(scene: Scene) -> None:
    ending = scene.isolate.ending
    assert ending is not None
    scene.resident.bury(of_ending(ending, Exit(signal=9)))


def end(running: Running) -> None:
    running.finished()
    running.resident.leave(running)


def test_an_invocation_over_its_cpu_time_ends_the_isolate_and_is_told_why() -> None:
    scene = Scene(cpu_ms=50)
    running = scene.begin()
    scene.look(cpu_ms=49)
    assert not scene.process.is_killed
    scene.look(cpu_ms=2)
    assert not scene.process.is_killed
    scene.end_silence()
    assert scene.process.is_killed
    end(running)
    assert [record.outcome for record in scene.records] == [Outcome.EXCEEDED_CPU]
    assert "50 ms" in scene.records[0].errors[0].message
    assert scene.records[0].cpu_ms == 51


def test_what_the_isolate_names_as_its_cause_has_broken_the_limit_and_others_were_held_up() -> None:
    scene = Scene(cpu_ms=50)
    first, second = scene.begin(), scene.begin()
    scene.look(cpu_ms=101)
    assert scene.process.num_inquiries == 1
    scene.hold(second, "entry.py", 12)
    scene.look()
    assert scene.process.is_killed
    bury(scene)
    end(first)
    end(second)
    assert [record.outcome for record in scene.records] == [
        Outcome.UNRESPONSIVE,
        Outcome.EXCEEDED_CPU,
    ]
    for record in scene.records:
        assert "entry.py, line 12" in record.errors[0].message


def test_of_an_isolate_that_says_nothing_the_one_with_the_largest_share_has_broken_the_limit() -> (
    None
):
    scene = Scene(cpu_ms=50)
    first = scene.begin()
    scene.look(cpu_ms=40)
    second = scene.begin()
    scene.look(cpu_ms=21)
    scene.end_silence()
    bury(scene)
    end(first)
    end(second)
    assert [record.outcome for record in scene.records] == [
        Outcome.EXCEEDED_CPU,
        Outcome.UNRESPONSIVE,
    ]


def test_an_isolate_that_does_not_read_for_a_second_is_asked_and_takes_no_more() -> None:
    scene = Scene()
    scene.begin()
    scene.process.unread = 100
    for now_s in (0.0, 0.5, 0.9):
        scene.now_s = now_s
        scene.look()
    assert (scene.resident.is_held_up, scene.process.num_inquiries) == (False, 0)
    scene.now_s = 1.0
    scene.look()
    assert (scene.resident.is_held_up, scene.process.num_inquiries) == (True, 1)
    scene.process.unread = 0
    scene.look()
    assert not scene.resident.is_held_up
    assert scene.told == ["busy", "held up", "reads"]


def test_a_call_that_blocks_all_is_ended_in_its_line_long_before_its_wall_time() -> None:
    scene = Scene(wall_s=300.0)
    innocent, blocking = scene.begin(), scene.begin()
    scene.process.unread = 100
    scene.look()
    scene.now_s = 1.0
    scene.look()
    scene.hold(blocking, "entry.py", 137)
    scene.now_s = 29.9
    scene.look()
    assert not scene.process.is_killed
    scene.now_s = 30.0
    scene.look()
    assert scene.process.is_killed
    bury(scene)
    end(blocking)
    end(innocent)
    assert [record.outcome for record in scene.records] == [
        Outcome.EXCEEDED_WALL,
        Outcome.UNRESPONSIVE,
    ]
    assert "entry.py, line 137" in scene.records[0].errors[0].message


def test_one_that_leaves_condemns_no_isolate_that_others_use() -> None:
    scene = Scene(wait_until_s=30.0)
    left, looping = scene.begin(), scene.begin()
    scene.isolate.obeys = False
    scene.process.unread = 100
    scene.look()
    left.judge(Verdict(Outcome.CANCELED, "gone"))
    scene.resident.leave(left)
    scene.now_s = 1.0
    scene.look(cpu_ms=900)
    scene.hold(looping, "entry.py", 3)
    for now_s in (30.0, 31.0, 40.0):
        scene.now_s = now_s
        scene.look(cpu_ms=6000)
    assert not scene.process.is_killed
    assert scene.resident.is_leaving
    scene.now_s = 41.0
    # 30 s of CPU time is what each may have
    scene.look(cpu_ms=20_000)
    assert scene.process.is_killed
    bury(scene)
    left.finished()
    end(looping)
    assert [record.outcome for record in scene.records] == [
        Outcome.CANCELED,
        Outcome.EXCEEDED_CPU,
    ]
    assert "entry.py, line 3" in scene.records[1].errors[0].message


def test_one_that_loops_on_after_its_client_has_left_is_the_one_that_is_named() -> None:
    scene = Scene(wait_until_s=30.0)
    looping, innocent = scene.begin(), scene.begin()
    scene.isolate.obeys = False
    scene.process.unread = 100
    scene.look()
    looping.judge(Verdict(Outcome.CANCELED, "gone"))
    scene.resident.leave(looping)
    scene.now_s = 1.0
    scene.look(cpu_ms=100)
    scene.hold(looping, "entry.py", 3)
    scene.now_s = 29.0
    scene.look(cpu_ms=5000)
    for now_s in (30.0, 31.0):
        scene.now_s = now_s
        scene.look(cpu_ms=100)
    assert scene.process.is_killed
    bury(scene)
    looping.finished()
    end(innocent)
    assert [record.outcome for record in scene.records] == [
        Outcome.EXCEEDED_WALL,
        Outcome.UNRESPONSIVE,
    ]


def test_what_two_may_use_together_is_what_both_were_given() -> None:
    scene = Scene(cpu_ms=50)
    scene.begin()
    scene.begin()
    scene.look(cpu_ms=99)
    assert not scene.process.is_killed


def test_an_isolate_that_neither_reads_nor_speaks_has_the_time_of_one_whatever_runs_in_it() -> None:
    scene = Scene(cpu_ms=50)
    for _ in range(10):
        scene.begin()
    scene.process.unread = 100
    scene.look(cpu_ms=20)
    scene.look(cpu_ms=40)
    assert not scene.process.is_killed
    scene.look(cpu_ms=20)
    scene.end_silence()
    assert scene.process.is_killed


def test_an_isolate_with_unread_requests_that_speaks_is_only_busy() -> None:
    scene = Scene(cpu_ms=50)
    for _ in range(10):
        scene.begin()
    scene.process.unread = 100
    for _ in range(9):
        scene.isolate.num_frames += 1
        scene.look(cpu_ms=45)
    assert not scene.process.is_killed


def test_an_invocation_over_its_wall_time_is_stopped_and_its_isolate_lives() -> None:
    scene = Scene(wall_s=5.0)
    running = scene.begin()
    scene.now_s = 4.9
    scene.look()
    assert scene.isolate.stopped == []
    scene.now_s = 5.0
    scene.look()
    assert scene.isolate.stopped == [running]
    end(running)
    assert scene.records[0].outcome is Outcome.EXCEEDED_WALL
    assert not scene.process.is_killed


def test_an_invocation_that_does_not_obey_takes_its_isolate_with_it() -> None:
    scene = Scene(wall_s=5.0)
    scene.isolate.obeys = False
    running = scene.begin()
    scene.now_s = 5.0
    scene.look()
    scene.now_s = 5.5
    scene.look()
    assert not scene.process.is_killed
    scene.now_s = 6.0
    scene.look()
    scene.end_silence()
    assert scene.process.is_killed
    end(running)
    assert scene.records[0].outcome is Outcome.EXCEEDED_WALL


def test_wait_until_is_stopped_when_its_time_is_over() -> None:
    scene = Scene(wait_until_s=30.0)
    running = scene.begin()
    scene.resident.leave(running)
    assert scene.records == []
    scene.now_s = 29.0
    scene.look()
    assert scene.isolate.stopped == []
    scene.now_s = 30.0
    scene.look()
    assert scene.isolate.stopped == [running]
    running.finished()
    assert scene.records[0].outcome is Outcome.EXCEEDED_WALL
    assert "wait_until" in scene.records[0].errors[0].message


def test_an_invocation_counts_until_wait_until_has_ended() -> None:
    scene = Scene()
    running = scene.begin()
    scene.resident.leave(running)
    assert (scene.told, scene.resident.num_taken) == (["busy"], 1)
    scene.now_s = 2.0
    running.finished()
    assert (scene.told, scene.resident.num_taken) == (["busy", "idle"], 0)
    assert scene.records[0].wall_ms == 2000


def test_a_response_that_goes_on_without_the_isolate_keeps_it_but_no_place_in_it() -> None:
    scene = Scene()
    running = scene.begin()
    running.finished()
    assert scene.resident.num_taken == 0
    scene.resident.retire()
    assert not scene.process.is_killed
    scene.resident.leave(running)
    assert scene.process.is_killed
    assert scene.records[0].outcome is Outcome.OK


def test_what_waits_for_nothing_is_stopped_and_named_with_its_line() -> None:
    scene = Scene()
    running = scene.begin()
    running.never_ends("entry.py", 12)
    assert scene.isolate.stopped == [running]
    end(running)
    assert scene.records[0].outcome is Outcome.NEVER_RESPONDS
    assert "entry.py, line 12" in scene.records[0].errors[0].message


def test_a_worker_whose_memory_was_full_takes_no_more() -> None:
    scene = Scene()
    running = scene.begin()
    running.failed(ErrorLine(name="MemoryError", message="", time_ms=0))
    running.finished()
    assert scene.resident.is_leaving
    assert not scene.process.is_killed
    scene.resident.leave(running)
    assert scene.process.is_killed


def test_invocations_learn_why_their_isolate_died_when_that_is_known() -> None:
    scene = Scene()
    running = scene.begin()
    scene.process.end(Exit(signal=11))
    end(running)
    assert scene.records == []
    ending = scene.isolate.ending
    assert ending is not None
    scene.resident.bury(of_ending(ending, Exit(signal=11)))
    assert scene.records[0].outcome is Outcome.CRASHED
    assert "SIGSEGV" in scene.records[0].errors[0].message


def test_an_invocation_that_had_finished_is_not_harmed_by_its_isolate_s_end() -> None:
    scene = Scene()
    running = scene.begin()
    running.finished()
    scene.process.end(Exit(signal=11))
    scene.resident.leave(running)
    assert scene.records[0].outcome is Outcome.OK


def test_several_that_use_a_whole_cpu_are_told_of() -> None:
    scene = Scene()
    scene.begin()
    scene.begin()
    scene.now_s = 0.3
    scene.look(cpu_ms=290)
    assert scene.resident.is_saturated
    scene.now_s = 0.6
    scene.look(cpu_ms=100)
    assert not scene.resident.is_saturated
    assert scene.told == ["busy", "saturated"]


def test_one_that_may_use_a_long_time_is_not_looked_at_all_the_time() -> None:
    scene = Scene(cpu_ms=30_000, wall_s=300.0)
    scene.begin()
    assert scene.look() == 0.25
    short = Scene(cpu_ms=20)
    short.begin()
    assert short.look() <= 0.02


def test_lines_over_the_limit_are_counted_and_not_kept() -> None:
    scene = Scene(log_lines=2)
    running = scene.begin()
    line = LogLine(level="log", text="x", time_ms=0)
    for _ in range(4):
        running.log(line)
    running.log(replace(line, num_dropped=10))
    end(running)
    kept = scene.records[0].logs
    assert [each.text for each in kept[:2]] == ["x", "x"]
    assert (len(kept), kept[2].num_dropped) == (3, 13)


def test_what_the_import_logged_is_in_the_first_record_alone() -> None:
    scene = Scene()
    scene.resident.outside.log(LogLine(level="log", text="imported", time_ms=0))
    end(scene.begin())
    end(scene.begin())
    assert [[line.text for line in record.logs] for record in scene.records] == [["imported"], []]


def test_the_time_between_invocations_is_told() -> None:
    scene = Scene()
    end(scene.begin())
    scene.process.cpu += 7 * MS
    assert scene.resident.used_while_idle_ns() == 7 * MS
