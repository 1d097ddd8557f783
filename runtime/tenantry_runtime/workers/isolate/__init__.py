"""The runtime's side of one isolate: frames in and out, in the edge's event loop."""

from __future__ import annotations

from .interface import (
    Attendant,
    Ending,
    EndingKind,
    HeldUp,
    InvocationFailed,
    IsolateEnded,
    IsolateLimits,
    IsolateStatistics,
    NeverBegan,
    StreamBroken,
    Violation,
)
from .isolate import Isolate, open_isolate

__all__ = [
    "Attendant",
    "Ending",
    "EndingKind",
    "HeldUp",
    "InvocationFailed",
    "Isolate",
    "IsolateEnded",
    "IsolateLimits",
    "IsolateStatistics",
    "NeverBegan",
    "StreamBroken",
    "Violation",
    "open_isolate",
]
