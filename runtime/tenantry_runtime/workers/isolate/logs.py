"""How many lines an isolate may log: its own side counts too, and is not believed.

| lines | at most |
|---|---|
| of an invocation | twice what its version may log and `SPARE_LINES`: no guest says more |
| of none | `num_logs` at once, then `logs_per_s`; more are counted, and `max_dropped_logs` end the isolate |
"""

from __future__ import annotations

import time

from tenantry_runtime.workers.frames import Log
from tenantry_runtime.workers.interface import LogLine

from .interface import IsolateLimits, Violation
from .invocations import Opened

LEVELS = frozenset({"log", "debug", "info", "warn", "error"})
MAX_COUNT = 1 << 31
"""Of lines that an isolate says it dropped."""
SPARE_LINES = 64


class LogGate:
    """Lets lines through, and counts those of no invocation that are too many."""

    def __init__(self, limits: IsolateLimits) -> None:
        self.max_lines = 0
        """Of an invocation, as its version has it."""
        self._limits = limits
        self._num_left = float(limits.num_logs)
        self._filled_s = time.monotonic()
        self._num_dropped = 0
        self._num_dropped_ever = 0

    def admit(self, frame: Log, opened: Opened | None) -> LogLine | None:
        """Return the line as it is kept; None for one too many. Raises `Violation` for a flood."""
        if frame.level not in LEVELS:
            raise Violation(f"a line of level {frame.level!r}")
        if not 0 <= frame.num_dropped < MAX_COUNT:
            raise Violation(f"a line after {frame.num_dropped} that were dropped")
        if opened is not None:
            opened.num_lines += 1
            if opened.num_lines > 2 * self.max_lines + SPARE_LINES:
                raise Violation(f"{opened.num_lines} lines of invocation {opened.number}")
        elif not self._has_room():
            return None
        num_dropped = frame.num_dropped
        if opened is None:
            num_dropped += self._num_dropped
            self._num_dropped = 0
        time_ms = time.time_ns() // 1_000_000
        return LogLine(level=frame.level, text=frame.text, time_ms=time_ms, num_dropped=num_dropped)

    def _has_room(self) -> bool:
        now_s = time.monotonic()
        refill = (now_s - self._filled_s) * self._limits.logs_per_s
        self._filled_s = now_s
        self._num_left = min(float(self._limits.num_logs), self._num_left + refill)
        if self._num_left >= 1:
            self._num_left -= 1
            return True
        self._num_dropped += 1
        self._num_dropped_ever += 1
        if self._num_dropped_ever > self._limits.max_dropped_logs:
            raise Violation(f"{self._num_dropped_ever} lines more than it may log")
        return False
