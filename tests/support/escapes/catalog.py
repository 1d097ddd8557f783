"""All attempts by their kinds, as far as they are for this machine."""

from __future__ import annotations

import platform

from .attempt import Attempt
from .files import FILES
from .kernel import KERNEL
from .network import NETWORK
from .privileges import CALLS, INHERITED, PRIVILEGES
from .processes import PROCESSES
from .resources import RESOURCES
from .tenants import TENANTS

KINDS = {
    "files": FILES,
    "processes": PROCESSES,
    "network": NETWORK,
    "kernel": KERNEL,
    "privileges": PRIVILEGES,
    "calls": CALLS,
    "inherited": INHERITED,
    "tenants": TENANTS,
    "resources": RESOURCES,
}


def attempts() -> dict[str, Attempt]:
    """Return all, by kind and name."""
    return {
        f"{kind}: {attempt.name}": attempt
        for kind, of_kind in KINDS.items()
        for attempt in of_kind
        if attempt.machine in (None, platform.machine())
    }
