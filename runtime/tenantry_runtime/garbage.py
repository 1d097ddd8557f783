"""When a process that serves looks for cycles of objects that nobody needs any more.

What it has imported stays until it ends. By default Python goes through all of that again and again: a
seventh of the time of a busy edge, in pauses of tens of milliseconds, in which no step begins either.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (10_000, 20, 20)
"""Of `gc.set_threshold`: more objects than those of a thousand requests at once."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Look at new objects alone, and less often, while the block runs."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
