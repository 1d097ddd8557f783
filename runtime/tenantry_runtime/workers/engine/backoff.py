"""When a version that could not be loaded is tried again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenantry_runtime.workers.interface import ErrorLine, LogLine, WorkerFailed
from tenantry_runtime.workers.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailure:
    """Why a version could not be loaded, as its tenant's log has it."""

    outcome: Outcome
    message: str
    """One line, for the error page."""
    error: ErrorLine
    lines: Sequence[LogLine] = ()
    """What the import had logged."""


class StartFailed(WorkerFailed):
    """No isolate with the version, for the version's own fault."""

    def __init__(self, failure: LoadFailure, *, retry_after_s: int) -> None:
        super().__init__(failure.outcome, failure.message, retry_after_s=retry_after_s)
        self.failure = failure


def again(failure: WorkerFailed) -> WorkerFailed:
    """Return the same for another invocation: an exception is one task's."""
    if isinstance(failure, StartFailed):
        return StartFailed(failure.failure, retry_after_s=failure.retry_after_s or 1)
    return WorkerFailed(failure.outcome, failure.message, retry_after_s=failure.retry_after_s)


class LoadBackoff:
    """Of one version. Only loads count: a worker that breaks a limit is replaced at once.

    When the time is over, one load is tried: it fails, and the time doubles, or all is forgotten.
    """

    __slots__ = ("_failure", "_first_s", "_most_s", "_until_s", "_wait_s")

    def __init__(self, *, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._wait_s = 0.0
        self._until_s = 0.0
        self._failure: LoadFailure | None = None

    @property
    def is_trying(self) -> bool:
        """Whether the last load failed, so that one is enough to see whether it still does."""
        return self._failure is not None

    def check(self, now_s: float) -> None:
        """Raise `StartFailed`, with what the last load failed of, while it is too soon for another."""
        if self._failure is not None and now_s < self._until_s:
            raise StartFailed(self._failure, retry_after_s=int(self._until_s - now_s) + 1)

    def fail(self, now_s: float, failure: LoadFailure) -> StartFailed:
        """Remember a load that failed; return what invocations are told."""
        self._wait_s = min(2 * self._wait_s or self._first_s, self._most_s)
        self._until_s = now_s + self._wait_s
        self._failure = failure
        return StartFailed(failure, retry_after_s=int(self._wait_s) + 1)

    def is_over(self, now_s: float) -> bool:
        """Whether nothing has failed, or so long ago that it need not be remembered."""
        return self._failure is None or now_s - self._until_s >= self._most_s

    def succeed(self) -> None:
        """Forget what failed."""
        self._failure = None
        self._wait_s = 0.0
