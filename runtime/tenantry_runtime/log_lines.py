"""How every process prints its log: lines for people, or JSON lines for machines.

`TENANTRY_LOG_FORMAT` is `text` (default) or `json`. A JSON line has:

| field | what |
|---|---|
| `time` | UTC, ISO 8601, microseconds |
| `level`, `logger`, `message`, `process` | as the program has them |
| `trace_id`, `span_id` | of the request that it was about, where one is known |
| `error` | `type`, `message` and `stack` of an exception |

What tenants' workers print is none of this: it is kept with each worker (`workers/logs/`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from tenantry_runtime.errors import ConfigurationError

FORMAT_VARIABLE = "TENANTRY_LOG_FORMAT"
TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TRACE_ID, SPAN_ID = "trace_id", "span_id"
"""Attributes of a log record that whoever knows them puts there (`telemetry/logs.py`)."""


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
        for name in (TRACE_ID, SPAN_ID):
            if (value := getattr(record, name, "")) != "":
                line[name] = value
        if record.exc_info is not None and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = {
                "type": type(error).__name__,
                "message": str(error),
                "stack": self.formatException(record.exc_info),
            }
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
