"""How an invocation of a worker ended: the words that logs, tails and error pages use."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """Cloudflare's words where it has one."""

    OK = "ok"
    EXCEPTION = "exception"
    """The worker raised."""
    CANCELED = "canceled"
    """Whoever asked went away, or the runtime ended it."""
    EXCEEDED_CPU = "exceededCpu"
    EXCEEDED_MEMORY = "exceededMemory"
    EXCEEDED_WALL = "exceededWallTime"
    NEVER_RESPONDS = "neverResponds"
    """It waited for nothing that could come."""
    CRASHED = "crashed"
    """The isolate died of a signal, or ended itself."""
    LOAD_FAILED = "scriptNotFound"
    """The worker could not be imported."""
    OVERLOADED = "overloaded"
    """No isolate was free in time."""
    VIOLATION = "protocolViolation"
    """The isolate said what no worker says by itself, and was ended."""
    UNRESPONSIVE = "unresponsive"
    """Another invocation held its isolate up, and was ended with it."""
    RESPONSE_TOO_LARGE = "responseStreamTooLarge"
    INTERNAL = "internalError"
    """The runtime's own fault: it could not read the worker, or make an isolate."""
