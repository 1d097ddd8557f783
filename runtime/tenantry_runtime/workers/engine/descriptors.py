"""Room for isolates among the descriptors that this process may have."""

from __future__ import annotations

import logging
import resource

NUM_EACH = 3
"""The stream, the process's handle, and one while it is made."""
NUM_OTHERS = 1024
"""Clients, nodes, the store and files: what a process has by itself on most systems."""

_log = logging.getLogger(__name__)


def make_room(num_isolates: int) -> int:
    """Raise the process's own limit as far as is needed and allowed; return how many isolates fit."""
    wanted = NUM_EACH * num_isolates + NUM_OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return num_isolates
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == wanted:
        return num_isolates
    fitting = max((allowed - NUM_OTHERS) // NUM_EACH, 1)
    _log.warning(
        "max_isolates is %d, but %d open files are allowed (ulimit -n): at most %d isolates run",
        num_isolates,
        allowed,
        fitting,
    )
    return fitting
