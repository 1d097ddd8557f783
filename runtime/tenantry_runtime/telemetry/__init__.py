"""Traces and logs: from a request's headers to the decode step, with the GenAI conventions' names."""

from . import names
from .endpoints import node_resource
from .journey import Journey, MemberTold
from .logs import exported_log, logging_of_requests
from .request_span import ClientGone, RequestSpan
from .setup import tracing
from .tracer import EdgeTracer, TracingStatistics
from .worker_span import CallSpan, WorkerSpan

__all__ = [
    "CallSpan",
    "ClientGone",
    "EdgeTracer",
    "Journey",
    "MemberTold",
    "RequestSpan",
    "TracingStatistics",
    "WorkerSpan",
    "exported_log",
    "logging_of_requests",
    "names",
    "node_resource",
    "tracing",
]
