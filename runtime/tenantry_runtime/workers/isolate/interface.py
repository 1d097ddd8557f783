"""What whoever runs an isolate gives it, and what it raises and tells.

One `Isolate` is the runtime's side of one process. It believes nothing that comes from there: what an
isolate may not say ends it with a `Violation`, in its `ending`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from tenantry_runtime.workers.interface import (
    ByteStream,
    ErrorLine,
    HttpResponse,
    LogLine,
    StreamResult,
)


class Attendant(Protocol):
    """Whoever began an invocation: answers its calls, and hears of it.

    All but `call` are called in the middle of reading the isolate's frames: they never wait and never
    raise.
    """

    async def call(
        self, binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object | HttpResponse | StreamResult:
        """Answer a call of the invocation's, in a task of its own.

        It is cancelled when the isolate forgets the call, when the invocation has finished and when the
        isolate ends. The body is closed by the isolate afterwards. A stream that is returned belongs to
        the isolate from then on. Raises `CallRefused`; all else that is raised becomes a refusal that
        says nothing, and is logged.
        """
        ...

    def log(self, line: LogLine) -> None:
        """Take something that was printed or logged."""
        ...

    def failed(self, error: ErrorLine) -> None:
        """Take the exception that ended the handler, or its body; `fetch` and the others raise it too."""
        ...

    def never_ends(self, path: str, line: int) -> None:
        """Hear that the invocation waits, in that line, for what nothing can bring."""
        ...

    def finished(self) -> None:
        """Hear that nothing of the invocation runs any more, `wait_until` included.

        Comes once for each invocation that began, last of all, also when the isolate ends.
        """
        ...


class EndingKind(StrEnum):
    """Why nothing more comes from an isolate."""

    CLOSED = "closed"
    """Its end of the stream is closed: its process is gone, or about to be."""
    VIOLATION = "violation"
    """It said what no isolate says; its process may still run and must be ended."""
    LEFT = "left"
    """The scope of `open_isolate` was left."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an isolate ended."""

    kind: EndingKind
    message: str
    unread_from: float = field(default=math.inf, compare=False)
    """Byte of what it was sent from which on it had certainly read nothing."""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """What kept an isolate from reading, by its own word."""

    attendant: Attendant | None
    """Of the invocation that does; None: of none."""
    path: str
    line: int
    num_signs: int
    """When it said so: where they are more it has gone on."""


class Violation(Exception):
    """An isolate said what none may say; `str()` names it."""


class IsolateEnded(Exception):
    """The isolate ended while something waited for it."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        super().__init__(ending)


class NeverBegan(IsolateEnded):
    """The invocation was never begun and never will be: it can be, body and all, in another isolate."""


class StreamBroken(Exception):
    """The body of a call broke off in the isolate; `str()` says why."""


class InvocationFailed(Exception):
    """The worker raised, or its task was cancelled.

    `name` is of the exception's class: `ValueError`; `CancelledError` after a cancel. `trace` is as
    Python prints it, from the tenant's first line on.
    """

    def __init__(self, name: str, message: str, trace: str = "") -> None:
        self.name = name
        self.message = message
        self.trace = trace
        super().__init__(name, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateLimits:
    """What an isolate may have of the runtime, whatever it says."""

    max_calls: int = 1024
    """Calls that are open at once; one more is refused."""
    max_call_bytes: int = 4 << 20
    """Arguments of all open calls, as they came; decoded they may be some sixty times as much."""
    max_streams: int = 1024
    """Streams that are open at once, of either side's; one more ends the isolate or is refused."""
    max_result_bytes: int = 32 << 20
    """Of a call's result, encoded."""
    num_logs: int = 4096
    """Lines of no invocation at once; more than `logs_per_s` after that are dropped and counted."""
    logs_per_s: int = 2048
    max_dropped_logs: int = 1 << 16
    """That end the isolate: its own side drops them earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateStatistics:
    """What an isolate has and had of the runtime."""

    num_invocations: int
    """That have not finished."""
    num_calls: int
    """Open now."""
    num_streams: int
    """Open now, of either side's."""
    num_frames: int
    """Read from it, in all."""
    num_signs: int
    """Frames that none sends who does not read what it is sent: all but lines and what it says when asked."""
    num_bytes: int
    """Read from it, in all."""
    busy_s: float
    """That the runtime spent on reading its frames: what it costs others beside its own CPU time."""
