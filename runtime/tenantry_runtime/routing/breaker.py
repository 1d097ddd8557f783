"""Keeping work away from a member that fails too much of it.

Failures that all are of one tenant do not count while the member serves other tenants well: else one
tenant's bad requests would keep it from everybody. Of a failed hand-off nobody can tell which side was
at fault, but who is at fault fails with more than one other: so those with one peer alone do not
count. Each pair of members has a breaker of its own for them, which parts the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

WINDOW = 32
"""Latest outcomes that count."""

MAX_FAILURES = 3
"""Of those; one more opens the breaker. A member that fails a fifth of its requests is shut out after
some twenty; one that fails a hundredth hardly ever is."""

FIRST_PAUSE_S = 5.0
LAST_PAUSE_S = 300.0
"""A member whose trial fails waits twice as long for the next, up to this."""


class Outcome(NamedTuple):
    """How one request has gone."""

    is_good: bool
    tenant: str
    suspect_with: Hashable | None = None
    """Of a failed hand-off, the other side."""


class Breaker:
    """Open after repeated failures; half open, for one trial at a time, when its pause is over."""

    def __init__(self) -> None:
        self._outcomes: deque[Outcome] = deque(maxlen=WINDOW)
        self._pause_s = FIRST_PAUSE_S
        self._opened_s: float | None = None
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        """Whether requests are kept away, but for trials."""
        return self._opened_s is not None

    def admits(self, now_s: float) -> bool:
        """Say whether a request may be placed."""
        if self._opened_s is None:
            return True
        return not self._is_trying and now_s >= self._opened_s + self._pause_s

    def begin(self) -> bool:
        """A request is being placed; say whether it is a trial."""
        if self._opened_s is None:
            return False
        self._is_trying = True
        return True

    def succeed(self, tenant: str, *, is_trial: bool) -> None:
        """A request has been served."""
        if not is_trial:
            self._outcomes.append(Outcome(True, tenant))
        elif self._is_trying:
            self._outcomes.clear()
            self._opened_s = None
            self._is_trying = False
            self._pause_s = FIRST_PAUSE_S

    def fail(
        self, now_s: float, tenant: str, *, is_trial: bool, suspect_with: Hashable | None = None
    ) -> None:
        """A request has failed by the member's fault, or by its or another's in a hand-off."""
        if is_trial:
            if self._is_trying:
                self._is_trying = False
                self._opened_s = now_s
                self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)
            return
        self._outcomes.append(Outcome(False, tenant, suspect_with))
        # those that were placed before it opened change nothing any more
        if self._opened_s is None and self._fails_too_much():
            self._opened_s = now_s

    def abandon(self, *, is_trial: bool) -> None:
        """A request has ended without saying anything about the member."""
        if is_trial:
            self._is_trying = False

    def _fails_too_much(self) -> bool:
        bad = [each for each in self._outcomes if not each.is_good]
        peers = {each.suspect_with for each in bad if each.suspect_with is not None}
        if len(peers) == 1:
            bad = [each for each in bad if each.suspect_with is None]
        failed = {each.tenant for each in bad}
        served = {each.tenant for each in self._outcomes if each.is_good}
        is_one_tenants = len(failed) == 1 and bool(served - failed)
        return len(bad) > MAX_FAILURES and not is_one_tenants
