"""Records in the form that wrangler reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.worker_routes import a_record
from tenantry_runtime.workers.interface import ErrorLine, Event, Invocation, LogLine
from tenantry_runtime.workers.logs.trace import encoded
from tenantry_runtime.workers.outcome import Outcome


def told(**fields: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(encoded(a_record(**fields)))
    return message


def test_a_request_is_told_as_cloudflare_tells_it() -> None:
    message = told(
        invocation=Invocation(id="ray", traceparent=f"00-{'a' * 32}-{'b' * 16}-01"),
        event=Event(
            kind="fetch",
            method="POST",
            url="http://hello.acme.localhost/x?y",
            headers=[("accept", "a"), ("accept", "b")],
        ),
        started_ms=1_800_000_000_000,
        status=201,
        logs=[LogLine(level="log", text="hi", time_ms=1_800_000_000_001)],
        errors=[ErrorLine(name="ValueError", message="no", time_ms=2, stack="Traceback …")],
        outcome=Outcome.EXCEPTION,
        cpu_ms=1.6,
        wall_ms=20.2,
        cold_start_ms=3.14159,
    )
    assert message == {
        "outcome": "exception",
        "scriptName": "hello",
        "scriptVersion": {"id": "version-of-hello"},
        "exceptions": [
            {"name": "ValueError", "message": "no", "timestamp": 2, "stack": "Traceback …"}
        ],
        "logs": [{"message": ["hi"], "level": "log", "timestamp": 1_800_000_000_001}],
        "eventTimestamp": 1_800_000_000_000,
        "event": {
            "request": {
                "url": "http://hello.acme.localhost/x?y",
                "method": "POST",
                "headers": {"accept": "a, b"},
                "cf": {},
            },
            "response": {"status": 201},
        },
        "truncated": False,
        "cpuTime": 2,
        "wallTime": 20,
        "requestId": "ray",
        "traceId": "a" * 32,
        "coldStart": 3.14,
    }


@pytest.mark.parametrize(
    ("event", "shown"),
    [
        (
            Event(kind="scheduled", cron="*/5 * * * *", scheduled_ms=7),
            {"cron": "*/5 * * * *", "scheduledTime": 7},
        ),
        (Event(kind="rpc", rpc_method="add"), {"rpcMethod": "add"}),
    ],
)
def test_other_events_have_their_own_form(event: Event, shown: dict[str, Any]) -> None:
    assert told(event=event)["event"] == shown


@pytest.mark.parametrize(
    "name", ["authorization", "cookie", "proxy-authorization", "x-api-key", "x-session-affinity"]
)
def test_credentials_are_not_told(name: str) -> None:
    event = Event(kind="fetch", headers=[(name, "SECRET"), (name, "SECRET"), ("accept", "x")])
    headers = told(event=event)["event"]["request"]["headers"]
    assert headers == {name: "REDACTED", "accept": "x"}


def test_lines_that_an_invocation_lost_are_counted_in_their_place() -> None:
    lines = [
        LogLine(level="log", text="first", time_ms=1),
        LogLine(level="log", text="last", time_ms=2, num_dropped=40),
    ]
    message = told(logs=lines)
    texts = [line["message"][0] for line in message["logs"]]
    assert texts == ["first", "(40 lines were too many and dropped)", "last"]
    assert message["truncated"] is True


def test_what_one_invocation_printed_is_bounded() -> None:
    lines = [LogLine(level="log", text="x" * 16_384, time_ms=place) for place in range(256)]
    message = told(logs=lines)
    assert len(encoded(a_record(logs=lines))) < 300_000
    assert message["logs"][-1]["message"] == ["(240 lines were too many and dropped)"]
    assert message["truncated"] is True
