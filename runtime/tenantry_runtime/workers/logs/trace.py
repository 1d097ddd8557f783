"""An invocation's record as Cloudflare's tails have it (`trace-v1`), which wrangler prints.

| field | what |
|---|---|
| outcome | a word of `workers.outcome` |
| scriptName, scriptVersion.id | the worker and its version |
| eventTimestamp | Unix time in milliseconds at which it began |
| event | `{request, response?}`, `{cron, scheduledTime}`, `{rpcMethod}` |
| logs | `{message: [text], level, timestamp}` each |
| exceptions | `{name, message, timestamp, stack?}` each |
| cpuTime, wallTime | milliseconds |
| requestId, traceId, coldStart, entrypoint | not Cloudflare's: the `cf-ray`, the trace, what a cold start took |

Values of headers that carry credentials are `REDACTED`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry_runtime.traceparent import span_ids
from tenantry_runtime.workers.interface import Event, HeaderList, LogLine, Record
from tenantry_runtime.workers.outcome import Outcome

REDACTED = "REDACTED"

MAX_LOG_CHARS = 256 << 10
"""Of what one invocation printed; Cloudflare's number. The rest is not told."""

_SECRET = re.compile(r"auth|cookie|jwt|key|secret|session|token|password")


class TraceLog(msgspec.Struct, frozen=True, kw_only=True):
    message: tuple[str, ...]
    level: str
    timestamp: int


class TraceException(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    message: str
    timestamp: int
    stack: str = ""


class ScriptVersion(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class TraceMessage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """What one invocation was. Any: events and responses are of several forms."""

    outcome: str
    script_name: str
    script_version: ScriptVersion
    exceptions: tuple[TraceException, ...]
    logs: tuple[TraceLog, ...]
    event_timestamp: int
    event: Any
    truncated: bool | None = None
    cpu_time: int | None = None
    wall_time: int | None = None
    request_id: str = ""
    trace_id: str = ""
    cold_start: float | None = None
    entrypoint: str = ""


_encoder = msgspec.json.Encoder()


def trace_of(record: Record) -> TraceMessage:
    """Return what is told of an invocation."""
    invocation = record.invocation
    logs = told_lines(record.logs)
    ids = span_ids(invocation.traceparent)
    return TraceMessage(
        outcome=record.outcome.value,
        script_name=record.version.worker,
        script_version=ScriptVersion(id=record.version.version_id),
        exceptions=tuple(
            TraceException(
                name=error.name, message=error.message, timestamp=error.time_ms, stack=error.stack
            )
            for error in record.errors
        ),
        logs=logs,
        event_timestamp=record.started_ms,
        event=_event(record.event, record.status),
        truncated=len(logs) != len(record.logs),
        cpu_time=round(record.cpu_ms),
        wall_time=round(record.wall_ms),
        request_id=invocation.id,
        trace_id="" if ids is None else ids.trace_id,
        cold_start=None if record.cold_start_ms is None else round(record.cold_start_ms, 2),
        entrypoint=invocation.entrypoint,
    )


def encoded(record: Record) -> bytes:
    """Print a record as one line of JSON."""
    return _encoder.encode(trace_of(record))


def dropped_messages(worker: str, num_dropped: int, now_ms: int) -> bytes:
    """Print the message that stands for others, as Cloudflare's tails have it."""
    message = TraceMessage(
        outcome=Outcome.OK.value,
        script_name=worker,
        script_version=ScriptVersion(id=""),
        exceptions=(),
        logs=(),
        event_timestamp=now_ms,
        event={
            "type": "overload",
            "message": f"{num_dropped} messages were too many and dropped; filters make them fewer",
        },
    )
    return _encoder.encode(message)


def told_lines(lines: Sequence[LogLine]) -> tuple[TraceLog, ...]:
    """Return what was printed, and in its place how much is missing."""
    logs: list[TraceLog] = []
    num_left = MAX_LOG_CHARS
    for place, line in enumerate(lines):
        if line.num_dropped:
            logs.append(_missing(line.num_dropped, line.time_ms))
        num_left -= len(line.text)
        if num_left < 0:
            logs.append(_missing(len(lines) - place, line.time_ms))
            break
        logs.append(TraceLog(message=(line.text,), level=line.level, timestamp=line.time_ms))
    return tuple(logs)


def _missing(num_lines: int, time_ms: int) -> TraceLog:
    lost = f"({num_lines} lines were too many and dropped)"
    return TraceLog(message=(lost,), level="warn", timestamp=time_ms)


# Any: as JSON has it
def _event(event: Event, status: int | None) -> dict[str, Any]:
    match event.kind:
        case "scheduled":
            return {"cron": event.cron, "scheduledTime": event.scheduled_ms}
        case "rpc":
            return {"rpcMethod": event.rpc_method}
        case _:
            request = {
                "url": event.url,
                "method": event.method,
                "headers": _shown(event.headers),
                "cf": {},
            }
            response = {} if status is None else {"response": {"status": status}}
            return {"request": request, **response}


def _shown(headers: HeaderList) -> dict[str, str]:
    shown: dict[str, str] = {}
    for name, value in headers:
        told = REDACTED if _SECRET.search(name) else value
        shown[name] = f"{shown[name]}, {told}" if name in shown and told != REDACTED else told
    return shown
