"""When a failed call is tried again, and after how long: the rules of Cloudflare's own SDKs, but for the
long waits.

| failure | tried again |
|---|---|
| no connection, or lost before an answer | yes |
| 408, 409, 429, 500 and above | yes |
| 429 because a quota is used up | no: a moment changes nothing |
| no room, where the caller had asked to be told of it | no |
| any answer that asks for a wait of more than a minute | no: the error says how long, and at once |
| silence for longer than `timeout` | no: the caller's limit is a limit, and the work may go on |
| anything else, or a stream that had begun | no |

`x-should-retry: true` or `false` in the answer overrules the table, but for the long wait. The wait is
what the answer asks for in `retry-after-ms` or `Retry-After`; else it doubles from 0.5 to 8 seconds,
less up to a quarter by chance, so that clients which failed together do not come back together.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from .errors import ConnectionFailed, QuotaExceeded, TenantryError

DEFAULT_MAX_RETRIES = 2
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 8.0
LONGEST_RETRY_AFTER_S = 60.0
JITTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Decides; the client waits."""

    max_retries: int = DEFAULT_MAX_RETRIES
    chance: Callable[[], float] = random.random
    """Uniform in [0, 1)."""

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise ValueError(f"max_retries is {self.max_retries!r}; it must be 0 or more")

    def wait_s(
        self, error: TenantryError, response: httpx.Response | None, *, num_retries: int
    ) -> float | None:
        """Say how long to wait before the next try; None: give up with `error`.

        `response` is None if there was none; `num_retries` have been made already.
        """
        if num_retries >= self.max_retries or not _may_retry(error, response):
            return None
        if error.retry_after:
            return error.retry_after if error.retry_after <= LONGEST_RETRY_AFTER_S else None
        doubled_s = min(FIRST_WAIT_S * 2.0**num_retries, LONGEST_WAIT_S)
        return doubled_s * (1 - JITTER * self.chance())


def _may_retry(error: TenantryError, response: httpx.Response | None) -> bool:
    if response is None:
        return isinstance(error, ConnectionFailed)
    advice: str | None = response.headers.get("x-should-retry")
    if advice in ("true", "false"):
        return advice == "true"
    if isinstance(error, QuotaExceeded):
        return False
    return response.status_code in (408, 409, 429) or response.status_code >= 500
