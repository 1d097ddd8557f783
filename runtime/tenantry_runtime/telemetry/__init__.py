"""Traces: one root span per request, with the GenAI conventions' names."""

from .request_span import ClientGone, RequestSpan
from .setup import tracing

__all__ = ["ClientGone", "RequestSpan", "tracing"]
