"""A record of an invocation, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

import click
import msgspec

from tenantry_cli.printable import printable

OUTCOMES = {
    "ok": "Ok",
    "canceled": "Canceled",
    "exception": "Exception Thrown",
    "exceededCpu": "Exceeded CPU Limit",
    "exceededMemory": "Exceeded Memory Limit",
    "exceededWallTime": "Exceeded Wall Time Limit",
    "neverResponds": "Never Responds",
    "unresponsive": "Held Up By Another Request",
    "crashed": "Crashed",
    "scriptNotFound": "Could Not Be Imported",
    "overloaded": "No Isolate Was Free",
    "protocolViolation": "Protocol Violation",
    "responseStreamTooLarge": "Response Too Large",
    "internalError": "Fault Of The Runtime",
}
_COLORS = {"error": "red", "warn": "yellow", "warning": "yellow", "debug": "blue"}


# Any: JSON, as a tail sends it
def record_lines(record: dict[str, Any]) -> Iterator[str]:
    """Yield a record's lines, styled; no control character of the worker's comes through."""
    outcome = str(record.get("outcome", "unknown"))
    words = OUTCOMES.get(outcome, "Unknown")
    styled = click.style(words, fg="green" if outcome == "ok" else "red")
    at = moment(record.get("eventTimestamp"))
    yield f"{_what(record)} - {styled} @ {at}"
    for line in _list(record, "logs"):
        level = str(line.get("level", "log"))
        shown = click.style(f"({printable(level)})", fg=_COLORS.get(level))
        text = printable(" ".join(_text(each) for each in _messages(line)))
        yield f"  {shown} {text}".replace("\n", "\n    ")
    for error in _list(record, "exceptions"):
        head = f"{error.get('name', 'Error')}: {_text(error.get('message', ''))}"
        stack = str(error.get("stack") or "").strip("\n")
        whole = stack if head in stack else f"{head}\n{stack}" if stack else head
        yield "\n".join(click.style(f"  {printable(line)}", fg="red") for line in whole.split("\n"))


def moment(unix_ms: object) -> str:
    """Return a Unix time in milliseconds as this machine's local time."""
    if not isinstance(unix_ms, int | float):
        return "-"
    return datetime.fromtimestamp(unix_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def _what(record: dict[str, Any]) -> str:
    event: object = record.get("event")
    told = cast("dict[str, Any]", event) if isinstance(event, dict) else {}
    if "cron" in told:
        return f'"{printable(str(told["cron"]))}"'
    if "request" in told:
        request = cast("dict[str, Any]", told["request"] or {})
        what = f"{request.get('method', '?')} {request.get('url', '?')}"
        return printable(" ".join(what.split()))
    if "rpcMethod" in told:
        entrypoint = record.get("entrypoint") or "Default"
        return printable(f"{entrypoint}.{told['rpcMethod']}")
    return "Unknown Event"


def _list(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    value: object = record.get(name)
    return cast("list[dict[str, Any]]", value) if isinstance(value, list) else []


def _messages(line: dict[str, Any]) -> list[object]:
    message: object = line.get("message")
    return cast("list[object]", message) if isinstance(message, list) else [message]


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
