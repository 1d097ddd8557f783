"""What tenants' workers did and said, sent to each tenant's own collector and to nobody else's.

`logs` in the file of `TENANTRY_TENANT_TRACES` (`tenants.py`) says where. Of an invocation go:

| record | body | severity | attributes of its own |
|---|---|---|---|
| the invocation | `METHOD URL`, `cron EXPRESSION` or `rpc METHOD` | INFO, ERROR unless it ended well | `http.request.method`, `http.response.status_code`, `faas.trigger` |
| each line | the line | its level | |
| each exception | `TYPE: MESSAGE` | ERROR | `exception.type`, `exception.message`, `exception.stacktrace` |

Each has the invocation's span where one is known, and which tenant, worker, version, request and outcome
it is of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import TraceFlags

from tenantry_runtime.log_lines import ToldError
from tenantry_runtime.traceparent import span_ids
from tenantry_runtime.workers.interface import Event, Record
from tenantry_runtime.workers.logs.trace import told_lines
from tenantry_runtime.workers.outcome import Outcome

from . import names
from .endpoints import TIMEOUT_S, is_disabled
from .logs import error_attributes
from .post import Post, PostLimits, PostStatistics, close_all
from .settings import TENANT_TRACES
from .tenant_exporter import TenantExporter
from .tenants import OF_TENANTS, TenantTraces, read_tenant_traces
from .tracer import SCOPE
from .worker_span import HTTP, TIMER

CLOSE_S = 3.0
"""How long the end waits, at most, for all tenants' collectors together."""
LIMITS = PostLimits(max_waiting=1024, max_batch=256, max_size=2 << 20)
"""Invocations of a tenant that wait, and characters of them."""
LINE_SIZE = 256
"""Of a line beside its text, about, in bytes."""

_SEVERITIES = {
    "debug": SeverityNumber.DEBUG,
    "warn": SeverityNumber.WARN,
    "error": SeverityNumber.ERROR,
}
"""Of a line by its level; others are INFO."""
_TRIGGERS = {"fetch": HTTP, "scheduled": TIMER}


@contextmanager
def sending_worker_logs(environ: Mapping[str, str]) -> Iterator[WorkerLogPosts]:
    """Send tenants what their workers log, for the duration of the block.

    Leaving it sends what is still held, for `CLOSE_S` at most. Raises `ConfigurationError` for what the
    tenants' file may not say.
    """
    traces = read_tenant_traces(environ.get(TENANT_TRACES))
    posts = WorkerLogPosts(TenantTraces() if is_disabled(environ) else traces)
    try:
        yield posts
    finally:
        posts.close(CLOSE_S)


class WorkerLogPosts:
    """A queue and a thread for each tenant that has a collector of logs."""

    def __init__(
        self, traces: TenantTraces, *, limits: PostLimits = LIMITS, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`timeout_s` is of one request."""
        self._posts = {
            tenant: Post[Record](
                TenantExporter(
                    destination.logs,
                    destination.headers,
                    encode=partial(_encoded, tenant),
                    what="logs",
                    timeout_s=timeout_s,
                ),
                name=f"{tenant}-logs",
                limits=limits,
                size_of=_size,
            )
            for tenant, destination in traces.tenants.items()
            if destination.logs is not None
        }

    def take(self, record: Record) -> None:
        """Queue what is known of an invocation for the tenant that it is of. Never waits."""
        post = self._posts.get(record.version.tenant)
        if post is not None:
            post.take(record)

    def statistics(self) -> Mapping[str, PostStatistics]:
        """By tenant."""
        return {tenant: post.statistics() for tenant, post in self._posts.items()}

    def close(self, within_s: float) -> None:
        """Take nothing more, and send what waits."""
        close_all(self._posts.values(), within_s)


def _size(record: Record) -> int:
    """Return what a record holds, about, in characters."""
    lines = sum(len(line.text) + LINE_SIZE for line in record.logs)
    errors = sum(len(each.message) + len(each.stack) + LINE_SIZE for each in record.errors)
    headers = sum(len(name) + len(value) for name, value in record.event.headers)
    return LINE_SIZE + len(record.event.url) + headers + lines + errors


def _encoded(tenant: str, records: Sequence[Record]) -> bytes:
    told: list[ReadableLogRecord] = []
    for record in records:
        assert record.version.tenant == tenant, "another tenant's record"
        told += _told(record)
    return bytes(encode_logs(told).SerializeToString())


def _told(record: Record) -> Iterator[ReadableLogRecord]:
    """Yield an invocation, its lines, and what it raised."""
    tell = partial(_one, record)
    outcome = SeverityNumber.INFO if record.outcome is Outcome.OK else SeverityNumber.ERROR
    yield tell(outcome, _title(record.event), record.started_ms, _of_event(record))
    for line in told_lines(record.logs):
        severity = _SEVERITIES.get(line.level, SeverityNumber.INFO)
        yield tell(severity, "".join(line.message), line.timestamp, {})
    for each in record.errors:
        error = ToldError(type=each.name, message=each.message, stack=each.stack)
        body = f"{each.name}: {each.message}"
        yield tell(SeverityNumber.ERROR, body, each.time_ms, error_attributes(error))


def _one(
    record: Record,
    severity: SeverityNumber,
    body: str,
    time_ms: int,
    attributes: Mapping[str, str | int],
) -> ReadableLogRecord:
    ids = span_ids(record.invocation.traceparent)
    told = LogRecord(
        timestamp=time_ms * 1_000_000,
        observed_timestamp=time.time_ns(),
        trace_id=None if ids is None else int(ids.trace_id, 16),
        span_id=None if ids is None else int(ids.span_id, 16),
        trace_flags=None if ids is None else TraceFlags(TraceFlags.SAMPLED),
        severity_text=severity.name,
        severity_number=severity,
        body=body,
        attributes={
            names.TENANT: record.version.tenant,
            names.WORKER: record.version.worker,
            names.WORKER_VERSION: record.version.version_id,
            names.WORKER_OUTCOME: record.outcome.value,
            names.REQUEST: record.invocation.id,
            **attributes,
        },
    )
    scope = InstrumentationScope(SCOPE)
    return ReadableLogRecord(told, resource=OF_TENANTS, instrumentation_scope=scope)


def _title(event: Event) -> str:
    match event.kind:
        case "scheduled":
            return f"cron {event.cron}"
        case "rpc":
            return f"rpc {event.rpc_method}"
        case _:
            return f"{event.method} {event.url}"


def _of_event(record: Record) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {}
    if (trigger := _TRIGGERS.get(record.event.kind)) is not None:
        attributes[names.FAAS_TRIGGER] = trigger
    if record.event.method:
        attributes[names.HTTP_METHOD] = record.event.method
    if record.status is not None:
        attributes[names.HTTP_STATUS] = record.status
    return attributes
