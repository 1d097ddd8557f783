"""An isolate that does not read what it is sent: since when, and what keeps it."""

from __future__ import annotations

from tenantry_runtime.workers.isolate import HeldUp

from .interface import Confined
from .running import Running

SILENT_S = 1.0
"""After which an isolate is asked what keeps it, and takes nothing more until it reads again. A busy one
reads every few milliseconds."""


class Silence:
    """Of one isolate, told at each look."""

    __slots__ = ("_began_ns", "_began_s", "_confined", "_num_signs", "is_long")

    def __init__(self, confined: Confined) -> None:
        self._confined = confined
        self._began_s: float | None = None
        self._began_ns = 0
        self._num_signs = 0
        self.is_long = False
        """Whether it has lasted for `SILENT_S`."""

    def listen(self, now_s: float, cpu_ns: int) -> None:
        """See whether the isolate has read, or said what only one that reads says."""
        if not self._confined.process.unread_bytes():
            self._began_s = None
        else:
            num_signs = self._confined.isolate.num_signs
            if self._began_s is None or num_signs != self._num_signs:
                self._began_s, self._began_ns, self._num_signs = now_s, cpu_ns, num_signs
        self.is_long = self._began_s is not None and now_s - self._began_s >= SILENT_S
        if self.is_long:
            self._confined.process.inquire()

    def seconds(self, now_s: float) -> float:
        """Return for how long it has lasted."""
        return 0.0 if self._began_s is None else now_s - self._began_s

    def used_ns(self, cpu_ns: int) -> int:
        """Return the CPU time that was used in it."""
        return 0 if self._began_s is None else cpu_ns - self._began_ns

    def holder(self) -> Running | None:
        """Return the invocation that keeps the isolate, if it has said so and not gone on since."""
        word = self._word()
        return word.attendant if word is not None and isinstance(word.attendant, Running) else None

    def place(self) -> tuple[str, int] | None:
        """Return file and line of the worker's where it is, likewise."""
        word = self._word()
        return None if word is None else (word.path, word.line)

    def _word(self) -> HeldUp | None:
        isolate = self._confined.isolate
        word = isolate.held_up
        return None if word is None or word.num_signs != isolate.num_signs else word
