"""One invocation in an isolate: what it calls, what is told of it, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenantry_runtime.workers.interface import (
    Bindings,
    ByteStream,
    CallContext,
    ErrorLine,
    HttpResponse,
    LogLine,
    Record,
    StreamResult,
)
from tenantry_runtime.workers.outcome import Outcome

from .allowance import Ticket
from .calls import Calls
from .log_lines import LogLines
from .verdict import Verdict

if TYPE_CHECKING:
    from .resident import Resident

MAX_ERRORS = 16
"""An invocation and what it gave `wait_until` may raise more; nobody reads them."""
STOPPED = "CancelledError"
"""The isolate's name for what ends an invocation that is told to end."""


class Running:
    """An `Attendant`. It ends twice: whoever asked leaves, and the isolate has finished with it."""

    __slots__ = (
        "_bindings",
        "_calls",
        "_lines",
        "_wall_deadline_s",
        "began_s",
        "deadline_s",
        "is_finished",
        "is_left",
        "is_orphan",
        "num_moves",
        "record",
        "resident",
        "ticket",
        "verdict",
    )

    def __init__(
        self,
        resident: Resident,
        record: Record,
        bindings: Bindings,
        *,
        ticket: Ticket,
        began_s: float,
        deadline_s: float,
        num_moves: int = 0,
    ) -> None:
        self.resident = resident
        self.record = record
        self._bindings = bindings
        # most invocations call nothing
        self._calls: Calls | None = None
        self.ticket = ticket
        self.began_s = began_s
        self.num_moves = num_moves
        """Isolates that gave it back unbegun."""
        self._wall_deadline_s = deadline_s
        self.deadline_s = deadline_s
        """When something happens unless it has ended: its time is over, or it must be gone."""
        self.verdict: Verdict | None = None
        """Why it was ended, or failed: the first reason counts."""
        self.is_left = False
        self.is_finished = False
        self.is_orphan = False
        """Whether the isolate ended before it."""
        self._lines = LogLines(record.version.limits.log_lines)

    @property
    def admitted_s(self) -> float:
        """When it was sent to its isolate."""
        return self._wall_deadline_s - self.record.version.limits.wall_s

    async def call(
        self, binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object | HttpResponse | StreamResult:
        if self._calls is None:
            context = CallContext(
                version=self.record.version,
                invocation=self.record.invocation,
                deadline_s=self._wall_deadline_s,
            )
            self._calls = Calls(self._bindings, context)
        return await self._calls.call(binding, method, args, body)

    def log(self, line: LogLine) -> None:
        self._lines.add(line)

    def failed(self, error: ErrorLine) -> None:
        if self.verdict is not None and error.name == STOPPED:
            # the verdict says why
            return
        if len(self.record.errors) < MAX_ERRORS:
            self.record.errors.append(error)

    def never_ends(self, path: str, line: int) -> None:
        place = f"{path}, line {line}" if path else "an unknown line"
        message = f"the worker waits in {place} for what nothing can bring: it would never respond"
        self.resident.stop(self, Verdict(Outcome.NEVER_RESPONDS, message))

    def finished(self) -> None:
        if not self.is_finished:
            self.is_finished = True
            self.resident.finish(self)

    def judge(self, verdict: Verdict) -> Verdict:
        """Remember why it ends, unless a reason is known; return the one that counts."""
        if self.verdict is None:
            self.verdict = verdict
        return self.verdict

    def convict(self, verdict: Verdict) -> None:
        """Take it for the one that its isolate is ended for, whatever was said before."""
        self.verdict = verdict

    def close_record(self, *, now_s: float, now_ms: int) -> Record:
        """Complete what is told of it."""
        record = self.record
        record.wall_ms = 1000 * (now_s - self.began_s)
        if self._lines.has_any:
            record.logs += self._lines.take(now_ms)
        if self.verdict is not None:
            record.outcome = self.verdict.outcome
            # the isolate has told of what the worker raised, trace and all
            is_told = self.verdict.outcome is Outcome.EXCEPTION and record.errors
            if not is_told and self.verdict.outcome is not Outcome.CANCELED:
                error = ErrorLine(
                    name=self.verdict.outcome.value, message=self.verdict.message, time_ms=now_ms
                )
                record.errors.append(error)
        return record
