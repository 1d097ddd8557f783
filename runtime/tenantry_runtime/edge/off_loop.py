"""Keeping work whose time grows with the request's size off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")

INLINE_BYTES = 8192
"""Requests up to this long are worked on where they are: that takes about a millisecond."""


async def off_loop(work: Callable[[], T], *, num_bytes: int, limiter: anyio.CapacityLimiter) -> T:
    """Do the work: in a thread for a request of more than `INLINE_BYTES`, as soon as one is free.

    Cancelling this abandons the thread: what it still does, nobody waits for.
    """
    if num_bytes <= INLINE_BYTES:
        return work()
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
