from __future__ import annotations

from typing import Any

import pytest

from support.worker_routes import a_record, a_version
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.interface import ErrorLine, Event, Invocation, LogLine
from tenantry_runtime.workers.logs import read_filters
from tenantry_runtime.workers.outcome import Outcome

RECORD: dict[str, Any] = {
    "version": a_version(version_id="v1"),
    "invocation": Invocation(id="0", client_ip="10.0.0.1"),
    "event": Event(kind="fetch", method="POST", headers=[("x-test", "some value")]),
    "logs": [LogLine(level="log", text="the needle", time_ms=0)],
    "errors": [ErrorLine(name="E", message="a message", time_ms=0, stack="in entry.py")],
    "outcome": Outcome.EXCEPTION,
}

# what wrangler sends for --status error
ERROR = ["exception", "exceededCpu", "exceededMemory", "unknown"]


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ([], True),
        ([{"outcome": ["ok"]}], False),
        ([{"outcome": ERROR}], True),
        ([{"method": ["post"]}], True),
        ([{"method": ["GET"]}], False),
        ([{"header": {"key": "X-Test"}}], True),
        ([{"header": {"key": "X-Test", "query": "value"}}], True),
        ([{"header": {"key": "X-Test", "query": "other"}}], False),
        ([{"header": {"key": "X-Other"}}], False),
        ([{"client_ip": ["10.0.0.2", "self"]}], True),
        ([{"client_ip": ["10.0.0.2"]}], False),
        ([{"query": "needle"}], True),
        ([{"query": "entry.py"}], True),
        ([{"query": "absent"}], False),
        ([{"scriptVersion": "v1"}], True),
        ([{"scriptVersion": "v2"}], False),
        ([{"method": ["POST"]}, {"query": "absent"}], False),
        ([{"method": ["POST"]}, {"query": "needle"}, {"outcome": ERROR}], True),
    ],
)
def test_all_filters_must_agree(filters: list[dict[str, Any]], matches: bool) -> None:
    assert read_filters(filters, client_ip="10.0.0.1").match(a_record(**RECORD)) is matches


@pytest.mark.parametrize("outcome", [Outcome.CRASHED, Outcome.NEVER_RESPONDS, Outcome.LOAD_FAILED])
def test_an_outcome_that_cloudflare_has_no_word_for_is_unknown_to_its_tools(
    outcome: Outcome,
) -> None:
    filters = read_filters([{"outcome": ERROR}], client_ip="")
    assert filters.match(a_record(outcome=outcome))
    assert not filters.match(a_record(outcome=Outcome.CANCELED))


def test_sampling_takes_its_part() -> None:
    filters = read_filters([{"sampling_rate": 0.25}], client_ip="")
    numbers = iter([at / 100 for at in range(100)])
    taken = [filters.match(a_record(), draw=lambda: next(numbers)) for _ in range(100)]
    assert taken == [True] * 25 + [False] * 75


@pytest.mark.parametrize(
    "filters",
    [
        [{"sampling_rate": 0}],
        [{"sampling_rate": 1.5}],
        [{"sampling_rate": "much"}],
        [{"colour": "red"}],
        [{"outcome": "ok"}],
        ["outcome"],
        [{}] * 21,
    ],
)
def test_what_is_no_filter_is_refused(filters: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidInput):
        read_filters(filters, client_ip="")
