"""What is watched is looked at when it asks for it, and nothing is while nothing runs."""

from __future__ import annotations

from tenantry_runtime.workers.engine.watchdog import Watchdog


class Watched:
    def __init__(self, quiet_s: float) -> None:
        self.next_look_s = 0.0
        self.num_looks = 0
        self._quiet_s = quiet_s

    def look(self, now_s: float) -> float:
        self.num_looks += 1
        return self._quiet_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def looks_in_a_second(watched: Watched) -> int:
    clock = Clock()
    watchdog = Watchdog(poll_s=0.005, now=clock)
    watchdog.watch(watched)
    # in the middle of each step, so that no step is at a limit
    for step in range(200):
        clock.now_s = (step + 0.5) * 0.005
        watchdog.look()
    return watched.num_looks


def test_what_may_break_a_limit_at_any_time_is_looked_at_in_every_step() -> None:
    assert looks_in_a_second(Watched(quiet_s=0.0)) == 200


def test_what_cannot_break_a_limit_for_a_while_is_left_alone_for_so_long() -> None:
    # at steps 0, 51, 102, 153: 0.25 s are 50 steps, and the next is the first that is later
    assert looks_in_a_second(Watched(quiet_s=0.2501)) == 4


def test_what_has_left_is_looked_at_no_more() -> None:
    clock, watched = Clock(), Watched(quiet_s=0.0)
    watchdog = Watchdog(poll_s=0.005, now=clock)
    watchdog.watch(watched)
    watchdog.look()
    watchdog.leave(watched)
    clock.now_s = 1.0
    watchdog.look()
    assert watched.num_looks == 1
