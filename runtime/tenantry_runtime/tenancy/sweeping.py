"""Deleting now and then what of a store nobody needs any more: what an edge does in the background."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Never

import anyio

from tenantry_runtime.errors import StoreUnavailable

_log = logging.getLogger(__name__)


async def sweep_forever(sweep: Callable[[], Awaitable[int]], *, every_s: float, what: str) -> Never:
    """Sweep until canceled; of a store that is away the log tells, and it is tried again in its turn.

    Several edges may sweep at one time. `what` names in the log what is swept.
    """
    while True:
        try:
            await sweep()
        except StoreUnavailable as error:
            _log.warning("%s are not swept: %s", what, error)
        await anyio.sleep(every_s)
