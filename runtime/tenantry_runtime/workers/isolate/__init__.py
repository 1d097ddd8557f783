"""The runtime's side of one isolate: frames in and out, in the edge's event loop."""

from __future__ import annotations

from .interface import (
    Attendant,
    Ending,
    EndingKind,
    InvocationFailed,
    IsolateEnded,
    IsolateLimits,
    IsolateStatistics,
    StreamBroken,
    Violation,
)
from .isolate import Isolate, open_isolate

__all__ = [
    "Attendant",
    "Ending",
    "EndingKind",
    "InvocationFailed",
    "Isolate",
    "IsolateEnded",
    "IsolateLimits",
    "IsolateStatistics",
    "StreamBroken",
    "Violation",
    "open_isolate",
]
