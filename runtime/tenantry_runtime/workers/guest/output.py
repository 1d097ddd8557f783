"""What a worker prints and logs, as frames: each line with the invocation that said it.

Nothing here waits: a line that finds no room is counted, and told with the next one that does.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import time
import warnings
from typing import Any, TextIO

from tenantry.workers._host import current_id
from tenantry_runtime.workers.frames import MAX_LOG_BYTES, Log

from .channel import Channel

MAX_WAITING_BYTES = 1 << 20
"""Of frames that the runtime has not taken; more lines are dropped meanwhile."""
NUM_LINES = 1024
"""Of no invocation, at once; then as many in `REFILL_S`."""
REFILL_S = 4.0
MAX_PIECES = 64
"""Of one line that is longer than a frame's text."""


class Output:
    """Sends lines, so many of an invocation, and counts what is more."""

    def __init__(self, channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
        self.max_lines = 256
        self._channel = channel
        self._loop = loop
        self._thread = threading.get_ident()
        self._num_lines: dict[int, int] = {}
        self._num_dropped: dict[int, int] = {}
        self._lines_left = float(NUM_LINES)
        self._filled_s = time.monotonic()
        self._streams = (LineStream(self, "log"), LineStream(self, "error"))

    def install(self) -> None:
        """Take the process's output: `print`, `sys.stderr`, `logging`, `warnings`, what threads raise."""
        sys.stdout, sys.stderr = self._streams
        logging.lastResort = RecordHandler(self)
        logging.StreamHandler.emit = _emit  # type: ignore[assignment, method-assign]  # keeps levels
        warnings.showwarning = self._warn

    def begin(self, invocation: int) -> None:
        """Count an invocation's lines from now on."""
        self._num_lines[invocation] = 0

    def finish(self, invocation: int) -> None:
        """Say what is left to say of an invocation; later lines are nobody's."""
        self.finish_lines(invocation)
        del self._num_lines[invocation]
        num_dropped = self._num_dropped.pop(invocation, 0)
        if num_dropped:
            text = f"{num_dropped} lines were dropped"
            self._channel.send(Log(invocation, "warn", text, num_dropped))

    def finish_lines(self, invocation: int) -> None:
        """Say the half lines that an invocation, or none (0), has left."""
        for stream in self._streams:
            stream.finish(invocation)

    def log(self, level: str, text: str, invocation: int | None = None) -> None:
        """Send lines at once, so that they are the last words of what ends the process."""
        number = current_id() if invocation is None else invocation
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._send, number, level, text)
        else:
            self._send(number, level, text)

    def _send(self, invocation: int, level: str, text: str) -> None:
        if invocation not in self._num_lines:
            invocation = 0
        # a lone surrogate is no text that a frame can have
        text = text.encode("utf-8", "replace").decode()
        for start in range(0, max(1, min(len(text), MAX_PIECES * MAX_LOG_BYTES)), MAX_LOG_BYTES):
            self._send_piece(invocation, level, text[start : start + MAX_LOG_BYTES])
        if len(text) > MAX_PIECES * MAX_LOG_BYTES:
            self._drop(invocation)
        self._channel.flush()

    def _send_piece(self, invocation: int, level: str, text: str) -> None:
        if not self._admit(invocation):
            self._drop(invocation)
            return
        self._channel.send(Log(invocation, level, text, self._num_dropped.pop(invocation, 0)))

    def _admit(self, invocation: int) -> bool:
        if self._channel.num_waiting() > MAX_WAITING_BYTES:
            return False
        if invocation:
            self._num_lines[invocation] += 1
            return self._num_lines[invocation] <= self.max_lines
        now_s = time.monotonic()
        refill = (now_s - self._filled_s) * NUM_LINES / REFILL_S
        self._filled_s = now_s
        self._lines_left = min(NUM_LINES, self._lines_left + refill) - 1
        if self._lines_left < 0:
            self._lines_left = 0
            return False
        return True

    def _drop(self, invocation: int) -> None:
        self._num_dropped[invocation] = self._num_dropped.get(invocation, 0) + 1

    def _warn(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        if file is None:
            self.log("warn", text.rstrip("\n"))
        else:
            file.write(text)


class LineStream(io.TextIOBase):
    """A text file of which each whole line is logged; each invocation has its own half line."""

    def __init__(self, output: Output, level: str) -> None:
        self.output = output
        self._level = level
        self._halves: dict[int, str] = {}

    encoding = "utf-8"
    errors = "replace"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        invocation = current_id()
        *lines, half = (self._halves.pop(invocation, "") + text).split("\n")
        for line in lines:
            self.output.log(self._level, line, invocation)
        while len(half) > MAX_LOG_BYTES:
            self.output.log(self._level, half[:MAX_LOG_BYTES], invocation)
            half = half[MAX_LOG_BYTES:]
        if half:
            self._halves[invocation] = half
        return len(text)

    def finish(self, invocation: int) -> None:
        """Log an invocation's half line."""
        half = self._halves.pop(invocation, "")
        if half:
            self.output.log(self._level, half, invocation)


class RecordHandler(logging.Handler):
    """Logs records with their levels, where the worker has configured nothing else."""

    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._output.log(level_of(record), self.format(record))
        except Exception:
            self.handleError(record)


def level_of(record: logging.LogRecord) -> str:
    """Return the frames' word for a record's level."""
    if record.levelno >= logging.ERROR:
        return "error"
    if record.levelno >= logging.WARNING:
        return "warn"
    return "info" if record.levelno >= logging.INFO else "debug"


_emit_to_file = logging.StreamHandler.emit


def _emit(self: logging.StreamHandler[Any], record: logging.LogRecord) -> None:
    """Log what goes to the worker's own output with its level, and its lines together."""
    if not isinstance(self.stream, LineStream):
        _emit_to_file(self, record)
        return
    try:
        self.stream.output.log(level_of(record), self.format(record))
    except Exception:
        self.handleError(record)
