"""What a worker did: live, before, for people and for programs."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from support.command_line import a_workerctl_process
from support.fake_control_plane import ControlPlaneFake
from support.http_peer import PATIENCE_S
from support.worker_folder import WorkerFolder


# Any: JSON
def a_record(**fields: Any) -> dict[str, Any]:
    """Return what a tail tells of a request."""
    return {
        "outcome": "ok",
        "scriptName": "hello",
        "exceptions": [],
        "logs": [],
        "eventTimestamp": 1_767_268_800_000,
        "event": {"request": {"url": "https://x.example/a", "method": "GET", "headers": {}}},
        **fields,
    }


@pytest.fixture
def deployed(folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch) -> WorkerFolder:
    monkeypatch.setenv("TZ", "UTC")
    assert folder.run("deploy").exit_code == 0
    return folder


def test_records_come_as_lines_of_json_until_ctrl_c(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    plane.records = [a_record(), a_record(outcome="exception")]

    with a_workerctl_process("tail", env={}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = [json.loads(process.stdout.readline()) for _ in plane.records]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
        said = process.stderr.read().decode()

    assert seen == plane.records
    assert said == "Connected to hello, waiting for logs... (Ctrl-C ends it)\n"
    assert plane.closed_tails == ["t1"]


def test_filters_are_sent_as_wrangler_sends_them(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    plane.tail_ends.set()
    options = ["--status", "ok", "--status", "canceled", "--method", "get", "--ip", "self"]
    options += ["--header", "x-id:7", "--search", "words", "--sampling-rate", "0.25"]

    deployed.run("tail", *options, "--version-id", "5e1c")

    assert plane.tail_filters == [
        [
            {"sampling_rate": 0.25},
            {"outcome": ["ok", "canceled"]},
            {"method": ["GET"]},
            {"header": {"key": "x-id", "query": "7"}},
            {"client_ip": ["self"]},
            {"query": "words"},
            {"scriptVersion": "5e1c"},
        ]
    ]


def test_errors_are_all_outcomes_but_the_good_ones(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    plane.tail_ends.set()

    deployed.run("tail", "--status", "error")

    ((wanted,),) = plane.tail_filters
    assert {"exception", "exceededCpu", "exceededMemory", "crashed"} <= set(wanted["outcome"])
    assert not {"ok", "canceled"} & set(wanted["outcome"])


def test_a_tail_that_the_server_ends_is_an_error(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    plane.records = [a_record()]
    plane.tail_ends.set()

    result = deployed.run("tail", "--format", "pretty")

    assert result.exit_code == 1
    assert result.stdout == "GET https://x.example/a - Ok @ 2026-01-01 12:00:00\n"
    assert "the tail has ended" in result.stderr
    assert plane.closed_tails == ["t1"]


@pytest.mark.parametrize(
    ("record", "lines"),
    [
        (
            a_record(
                outcome="exception",
                logs=[
                    {"level": "log", "message": ["a", {"b": 1}], "timestamp": 1},
                    {"level": "error", "message": ["two\nlines"], "timestamp": 2},
                ],
                exceptions=[
                    {
                        "name": "ValueError",
                        "message": "no",
                        "stack": 'File "entry.py", line 3\nValueError: no',
                    }
                ],
            ),
            [
                "GET https://x.example/a - Exception Thrown @ 2026-01-01 12:00:00",
                '  (log) a {"b":1}',
                "  (error) two",
                "    lines",
                '  File "entry.py", line 3',
                "  ValueError: no",
            ],
        ),
        (
            a_record(event={"cron": "*/5 * * * *", "scheduledTime": 1}, outcome="exceededCpu"),
            ['"*/5 * * * *" - Exceeded CPU Limit @ 2026-01-01 12:00:00'],
        ),
        (
            a_record(event={"rpcMethod": "add"}, exceptions=[{"name": "E", "message": "m"}]),
            ["Default.add - Ok @ 2026-01-01 12:00:00", "  E: m"],
        ),
        (
            a_record(logs=[{"level": "log", "message": ["\x1b[2J\x07gone"]}]),
            [
                "GET https://x.example/a - Ok @ 2026-01-01 12:00:00",
                "  (log) \ufffd[2J\ufffdgone",
            ],
        ),
    ],
    ids=["exception", "cron", "rpc", "control-characters"],
)
def test_kept_records_are_shown_as_a_tail_shows_them(
    plane: ControlPlaneFake, deployed: WorkerFolder, record: dict[str, Any], lines: list[str]
) -> None:
    plane.workers["hello"].kept_logs = [record]

    assert deployed.run("logs", "--format", "pretty").stdout.splitlines() == lines


def test_logs_ask_for_what_is_wanted(plane: ControlPlaneFake, deployed: WorkerFolder) -> None:
    plane.workers["hello"].kept_logs = [a_record(outcome=str(number)) for number in range(5)]

    result = deployed.run("logs", "-n", "2", "--since", "1h", "--status", "ok", "--search", "x")

    shown = [json.loads(line)["outcome"] for line in result.stdout.splitlines()]
    query = plane.calls[-1].query
    assert shown == ["3", "4"]
    assert (query["limit"], query["outcome"], query["query"]) == ("2", "ok", "x")
    assert query["since"].isdigit()


def test_nothing_kept_is_said(deployed: WorkerFolder) -> None:
    result = deployed.run("logs")

    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing is kept that fits" in result.stderr
