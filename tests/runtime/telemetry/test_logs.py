from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from support.collectors import Collector, a_collector, a_hanging_collector
from tenantry_runtime.core import RequestId
from tenantry_runtime.telemetry import RequestSpan, logging_of_requests, logs, tracing

LOGS = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"

_log = logging.getLogger("tenantry.test")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with a_collector() as server:
        monkeypatch.setenv(LOGS, server.url)
        yield server


def test_records_reach_the_collector_with_severity_and_exception(collector: Collector) -> None:
    with logging_of_requests({LOGS: collector.url}):
        _log.warning("hello %s", "you")
        try:
            raise ValueError("out of luck")
        except ValueError:
            _log.exception("failed")
    hello, failed = collector.records
    assert (hello.body.string_value, hello.severity_text) == ("hello you", "WARNING")
    assert hello.severity_number == 13
    seen = {each.key: each.value.string_value for each in failed.attributes}
    assert (seen["exception.type"], seen["exception.message"]) == ("ValueError", "out of luck")


def test_a_record_says_which_request_it_is_about(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_collector() as traces:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", traces.url)
        environ = {LOGS: collector.url, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": traces.url}
        with tracing(environ) as tracer, logging_of_requests(environ):
            _log.warning("before")
            span = RequestSpan(
                tracer,
                headers={},
                method="POST",
                route="/run",
                server=None,
                request_id=RequestId("r"),
            )
            _log.warning("during")
            span.end(status=200)
            _log.warning("after")
        [root] = traces.spans
    assert [(record.body.string_value, record.span_id) for record in collector.records] == [
        ("before", b""),
        ("during", root.span_id),
        ("after", b""),
    ]
    assert collector.records[1].trace_id == root.trace_id


def test_what_exporters_say_of_their_failures_is_not_exported(collector: Collector) -> None:
    with logging_of_requests({LOGS: collector.url}):
        logging.getLogger("opentelemetry.exporter").error("cannot be sent")
        _log.warning("hello")
    assert [record.body.string_value for record in collector.records] == ["hello"]


def test_a_collector_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CLOSE_S", 0.3)
    with a_hanging_collector() as url:
        monkeypatch.setenv(LOGS, url)
        started_s = time.monotonic()
        with logging_of_requests({LOGS: url}):
            for _ in range(5000):
                _log.warning("hello")
        assert time.monotonic() - started_s < 10


def test_without_a_collector_the_log_is_left_as_it_was() -> None:
    before = list(logging.getLogger().handlers)
    with logging_of_requests({}):
        assert logging.getLogger().handlers == before
    assert logging.getLogger().handlers == before
