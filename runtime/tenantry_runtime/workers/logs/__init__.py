"""What workers did and said: told to whoever tails them, and kept for a while.

Both are of one edge: a tail shows what runs at the edge that it is connected to, and each edge keeps the
logs of its own invocations below its state directory. With several edges behind one address, a tail and a
look at kept logs show a part; the trace id in every record joins parts elsewhere.
"""

from __future__ import annotations

from .broker import Tail, TailBroker
from .filters import TailFilters, read_filters
from .kept import KeptLogs, LogLimits, LogPage, open_logs
from .listener import open_tail_listener
from .sink import TakeRecord, WorkerLogs, open_worker_logs
from .trace import TraceMessage, trace_of

__all__ = [
    "KeptLogs",
    "LogLimits",
    "LogPage",
    "Tail",
    "TailBroker",
    "TailFilters",
    "TakeRecord",
    "TraceMessage",
    "WorkerLogs",
    "open_logs",
    "open_tail_listener",
    "open_worker_logs",
    "read_filters",
    "trace_of",
]
