"""How every process prints its log: lines for people, or JSON lines for machines.

`TENANTRY_LOG_FORMAT` is `text` (default) or `json`. A JSON line has:

| field | what |
|---|---|
| `time` | UTC, ISO 8601, microseconds |
| `level`, `logger`, `message`, `process` | as the program has them |
| `request_id`, `trace_id`, `span_id` | of the request that it was about, where one is known |
| `error` | `type`, `message` and `stack` of an exception |

What tenants' workers print is none of this: it is kept with each worker (`workers/logs/`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from tenantry_runtime.errors import ConfigurationError

from .traceparent import span_ids

FORMAT_VARIABLE = "TENANTRY_LOG_FORMAT"
TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
REQUEST, TRACE_ID, SPAN_ID = "request_id", "trace_id", "span_id"
"""Attributes of a log record that whoever knows them puts there (`about`, `telemetry/logs.py`)."""
TOLD_ERROR = "told_error"
"""Attribute of a record whose exception was raised in another process."""


class ToldError(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of an exception."""

    type: str
    message: str
    stack: str


def about(request_id: str, traceparent: str = "") -> dict[str, str]:
    """Return the `extra` of a record that is about a request, and about its span if one is named.

    `request_id` may be that of one of its sequences.
    """
    ids = span_ids(traceparent)
    of_span = {} if ids is None else {TRACE_ID: ids.trace_id, SPAN_ID: ids.span_id}
    # sequences of one request are told apart by what follows
    return {REQUEST: request_id.partition("#")[0], **of_span}


def told_error(record: logging.LogRecord) -> ToldError | None:
    """Return what is to be said of a record's exception, if it has one."""
    told = getattr(record, TOLD_ERROR, None)
    if isinstance(told, ToldError):
        return told
    if record.exc_info is None or record.exc_info[1] is None:
        return None
    error = record.exc_info[1]
    stack = logging.Formatter().formatException(record.exc_info)
    return ToldError(type=type(error).__name__, message=str(error), stack=stack)


class JsonLines(logging.Formatter):
    """One object a line, whatever a message has in it."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        line: dict[str, object] = {
            "time": time,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        for name in (REQUEST, TRACE_ID, SPAN_ID):
            if (value := getattr(record, name, "")) != "":
                line[name] = value
        if (error := told_error(record)) is not None:
            line["error"] = msgspec.structs.asdict(error)
        return json.dumps(line, default=str)


def formatter(environ: Mapping[str, str]) -> logging.Formatter:
    """Return what prints records. Raises `ConfigurationError` for a format that there is not."""
    match environ.get(FORMAT_VARIABLE) or "text":
        case "text":
            return logging.Formatter(TEXT_FORMAT)
        case "json":
            return JsonLines()
        case other:
            raise ConfigurationError(f"{FORMAT_VARIABLE} is {other!r}; it may be text or json")


def log_to_stderr(environ: Mapping[str, str], *, level: int = logging.INFO) -> None:
    """Print this process's log. To be called once, before anything logs."""
    logging.basicConfig(level=level)
    printer = formatter(environ)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(printer)
