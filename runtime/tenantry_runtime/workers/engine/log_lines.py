"""What a worker logs, as much of it as is kept."""

from __future__ import annotations

from tenantry_runtime.workers.interface import LogLine

MAX_LOG_BYTES = 256 << 10
"""Of an invocation's log: Cloudflare's own limit."""


class LogLines:
    """Keeps the first lines and counts the others."""

    __slots__ = ("_lines", "_max_lines", "_num_bytes", "_num_dropped")

    def __init__(self, max_lines: int) -> None:
        self._max_lines = max_lines
        self._lines: list[LogLine] = []
        self._num_bytes = 0
        self._num_dropped = 0

    @property
    def has_any(self) -> bool:
        """Whether there is something to take."""
        return bool(self._lines or self._num_dropped)

    def add(self, line: LogLine) -> None:
        """Keep a line, unless there are too many."""
        # as if each character were one byte: a bound is all that is wanted
        num_bytes = self._num_bytes + len(line.text)
        if len(self._lines) < self._max_lines and num_bytes <= MAX_LOG_BYTES:
            self._lines.append(line)
            self._num_bytes = num_bytes
        else:
            self._num_dropped += 1 + line.num_dropped

    def take(self, now_ms: int) -> list[LogLine]:
        """Return what is here, with a last line that counts what is not, and begin anew."""
        lines = self._lines
        if self._num_dropped:
            text = f"{self._num_dropped} more lines were dropped: a log is limited"
            dropped = LogLine(
                level="warn", text=text, time_ms=now_ms, num_dropped=self._num_dropped
            )
            lines.append(dropped)
        self._lines = []
        self._num_bytes = self._num_dropped = 0
        return lines
