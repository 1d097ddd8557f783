"""A step loop's log on its way to a collector: the loop hands it to the front, which exports it.

So the loop's process has no exporter and no thread beside the one that computes. It prints its records
itself: what it says last is on standard error even where it cannot be handed on any more.
"""

from __future__ import annotations

import logging
from collections import deque

import msgspec

from tenantry_runtime.log_lines import (
    REQUEST,
    SPAN_ID,
    TOLD_ERROR,
    TRACE_ID,
    ToldError,
    told_error,
)

MAX_WAITING = 256
"""Records between two turns; a turn that says more is one that fails for everybody alike."""
MAX_CHARS = 16_384
"""Of a message, and of an exception's message and stack: with `MAX_WAITING` some MiB at most."""


class Logged(msgspec.Struct, frozen=True, kw_only=True, tag="logged"):
    """A record of a step loop's log."""

    logger: str
    level: int
    message: str
    created_s: float
    """Unix time."""
    path: str
    line: int
    request: str = ""
    trace_id: str = ""
    span_id: str = ""
    error: ToldError | None = None
    num_dropped: int = 0
    """Records before it for which there was no room."""


class LoopLog(logging.Handler):
    """Holds records until the loop has time for them; never waits, and drops what is too much."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: deque[Logged] = deque()
        self._num_dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._num_dropped += 1
            return
        try:
            self._waiting.append(_logged(record, self._num_dropped))
        except Exception:
            # as all handlers do: a message that cannot be made is its author's fault, not the loop's end
            self.handleError(record)
        else:
            self._num_dropped = 0

    def next(self) -> Logged | None:
        """Take the oldest that waits."""
        return self._waiting.popleft() if self._waiting else None


def record_of(logged: Logged) -> logging.LogRecord:
    """Return the record as handlers of another process take it."""
    message = logged.message
    if logged.num_dropped:
        message = f"{message} ({logged.num_dropped} records before it were too many and dropped)"
    return logging.makeLogRecord(
        {
            "name": logged.logger,
            "levelno": logged.level,
            "levelname": logging.getLevelName(logged.level),
            "msg": message,
            "created": logged.created_s,
            "pathname": logged.path,
            "lineno": logged.line,
            REQUEST: logged.request,
            TRACE_ID: logged.trace_id,
            SPAN_ID: logged.span_id,
            TOLD_ERROR: logged.error,
        }
    )


def _logged(record: logging.LogRecord, num_dropped: int) -> Logged:
    error = told_error(record)
    if error is not None:
        error = ToldError(type=error.type, message=_cut(error.message), stack=_cut(error.stack))
    return Logged(
        logger=record.name,
        level=record.levelno,
        message=_cut(record.getMessage()),
        created_s=record.created,
        path=record.pathname,
        line=record.lineno,
        request=getattr(record, REQUEST, ""),
        trace_id=getattr(record, TRACE_ID, ""),
        span_id=getattr(record, SPAN_ID, ""),
        error=error,
        num_dropped=num_dropped,
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}…"
