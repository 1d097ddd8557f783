"""The logs of edges and nodes: which request a record is about, and the way to a collector.

Records go to a collector by OTLP where `OTEL_EXPORTER_OTLP_ENDPOINT`, or the same for logs alone, is set
and `OTEL_LOGS_EXPORTER` is not `none`. They are the operator's: of tenants' workers nothing is among them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import TraceFlags

from tenantry_runtime.log_lines import REQUEST, SPAN_ID, TRACE_ID, ToldError, told_error

from . import names
from .endpoints import exporter_timeout_s, is_exporting, resource
from .post import Post, PostStatistics, close_all
from .settings import read_limits

CLOSE_S = 3.0
"""How long the end of a process waits for its collector, at most."""

_EXPORTERS_OWN = ("opentelemetry", "urllib3", "requests")
"""Loggers that speak of sending: what fails to be sent is not sent after it."""

_SEVERITIES = (
    (logging.CRITICAL, SeverityNumber.FATAL),
    (logging.ERROR, SeverityNumber.ERROR),
    (logging.WARNING, SeverityNumber.WARN),
    (logging.INFO, SeverityNumber.INFO),
)


class OfRequest(logging.Filter):
    """Puts on each record which trace it is part of. Lets all pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = trace.get_current_span().get_span_context()
        if context.is_valid and not hasattr(record, TRACE_ID):
            setattr(record, TRACE_ID, format(context.trace_id, "032x"))
            setattr(record, SPAN_ID, format(context.span_id, "016x"))
        return True


class ToCollector(logging.Handler):
    """Queues records for a collector; never waits."""

    def __init__(self, post: Post[ReadableLogRecord], source: Resource) -> None:
        super().__init__()
        self._post = post
        self._source = source

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(_EXPORTERS_OWN):
            return
        try:
            translated = _translated(record)
        except Exception:
            # as all handlers do: a message that cannot be made ends nobody's work
            self.handleError(record)
            return
        self._post.take(
            ReadableLogRecord(
                translated,
                resource=self._source,
                instrumentation_scope=InstrumentationScope(record.name),
            )
        )

    def statistics(self) -> PostStatistics:
        return self._post.statistics()


@contextmanager
def exported_log(environ: Mapping[str, str], source: Resource) -> Iterator[ToCollector | None]:
    """Send this process's records, said to come from `source`, to a collector; None: none is named.

    What is yielded takes records of other processes too. Leaving the block sends what is still held,
    for `CLOSE_S` at most. Raises `ConfigurationError`.
    """
    if not is_exporting(environ, "logs"):
        yield None
        return
    limits = read_limits(environ, "BLRP")
    exporter = OTLPLogExporter(timeout=exporter_timeout_s(environ, "logs"))
    post = Post[ReadableLogRecord](exporter, name="logs", limits=limits)
    handler = ToCollector(post, source)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        close_all([post], CLOSE_S)


@contextmanager
def logging_of_requests(environ: Mapping[str, str]) -> Iterator[None]:
    """Let an edge's log records say which request they are about, and export them.

    Raises `ConfigurationError`.
    """
    of_request = OfRequest()
    with exported_log(environ, resource()):
        handlers = list(logging.getLogger().handlers)
        for handler in handlers:
            handler.addFilter(of_request)
        try:
            yield
        finally:
            for handler in handlers:
                handler.removeFilter(of_request)


def _translated(record: logging.LogRecord) -> LogRecord:
    attributes: dict[str, str | int] = {"code.line.number": record.lineno}
    attributes["code.file.path"] = record.pathname
    if request := getattr(record, REQUEST, ""):
        attributes[names.REQUEST] = request
    if (error := told_error(record)) is not None:
        attributes |= error_attributes(error)
    trace_id, span_id = getattr(record, TRACE_ID, ""), getattr(record, SPAN_ID, "")
    severity = next((s for least, s in _SEVERITIES if record.levelno >= least), None)
    return LogRecord(
        timestamp=int(record.created * 1e9),
        observed_timestamp=time.time_ns(),
        trace_id=int(trace_id, 16) if trace_id else None,
        span_id=int(span_id, 16) if span_id else None,
        trace_flags=TraceFlags(TraceFlags.SAMPLED) if trace_id else None,
        severity_text=record.levelname,
        severity_number=severity or SeverityNumber.DEBUG,
        body=record.getMessage(),
        attributes=attributes,
    )


def error_attributes(error: ToldError) -> dict[str, str]:
    """Return an exception as the conventions have it."""
    return {
        "exception.type": error.type,
        "exception.message": error.message,
        "exception.stacktrace": error.stack,
    }
