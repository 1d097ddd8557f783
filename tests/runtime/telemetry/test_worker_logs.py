"""What tenants' workers log, on its way to each tenant's own collector."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from support.collectors import (
    Collector,
    a_collector,
    a_hanging_collector,
    a_refusing_collector,
    attributes_of,
)
from support.worker_routes import a_record, a_version
from tenantry_runtime.core import TenantId
from tenantry_runtime.telemetry import logging_of_requests, tracing
from tenantry_runtime.telemetry.post import PostLimits
from tenantry_runtime.telemetry.tenants import Destination, TenantTraces
from tenantry_runtime.telemetry.worker_logs import WorkerLogPosts, sending_worker_logs
from tenantry_runtime.workers.interface import ErrorLine, Event, Invocation, LogLine, Record
from tenantry_runtime.workers.logs import open_worker_logs
from tenantry_runtime.workers.outcome import Outcome

FILE = "TENANTRY_TENANT_TRACES"
OPERATOR = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE_ID, SPAN_ID = "a" * 32, "b" * 16
FAILED = Invocation(id="ray", traceparent=f"00-{TRACE_ID}-{SPAN_ID}-01")

PATIENCE_S = 30.0


@pytest.fixture
def collector() -> Iterator[Collector]:
    with a_collector() as server:
        yield server


def of(tenant: str, *lines: str, level: str = "log") -> Record:
    return a_record(
        version=a_version(tenant=TenantId(tenant)),
        logs=[LogLine(level=level, text=line, time_ms=1) for line in lines],
    )


def sent_to(collector: Collector, *records: Record) -> list[LogRecord]:
    tenants = {str(record.version.tenant): Destination(logs=collector.url) for record in records}
    posts = WorkerLogPosts(TenantTraces(tenants=tenants))
    for record in records:
        posts.take(record)
    posts.close(PATIENCE_S)
    return collector.records


def bodies(collector: Collector) -> list[str]:
    return [record.body.string_value for record in collector.records]


def tenants_file(folder: Path, **urls: str) -> str:
    file = folder / "tenants.toml"
    lines = [f'[tenants.{name}]\nlogs = "{url}"' for name, url in urls.items()]
    file.write_text("\n".join(lines))
    return str(file)


def test_an_invocation_is_told_with_its_lines_and_what_it_raised(collector: Collector) -> None:
    record = a_record(
        invocation=FAILED,
        event=Event(kind="fetch", method="POST", url="http://hello.acme.localhost/x?y"),
        started_ms=1_800_000_000_000,
        status=500,
        logs=[
            LogLine(level="log", text="printed", time_ms=1_800_000_000_001),
            LogLine(level="error", text="on stderr", time_ms=1_800_000_000_002),
        ],
        errors=[ErrorLine(name="ValueError", message="no", time_ms=2, stack="Traceback …")],
        outcome=Outcome.EXCEPTION,
    )
    told = sent_to(collector, record)
    assert [(each.body.string_value, each.severity_text) for each in told] == [
        ("POST http://hello.acme.localhost/x?y", "ERROR"),
        ("printed", "INFO"),
        ("on stderr", "ERROR"),
        ("ValueError: no", "ERROR"),
    ]
    assert told[1].time_unix_nano == 1_800_000_000_001_000_000
    assert {(each.trace_id.hex(), each.span_id.hex()) for each in told} == {(TRACE_ID, SPAN_ID)}
    common = {
        "tenantry.tenant": record.version.tenant,
        "tenantry.worker": "hello",
        "tenantry.worker.version": "version-of-hello",
        "tenantry.worker.outcome": "exception",
        "tenantry.request": "ray",
    }
    invocation = {
        "http.request.method": "POST",
        "http.response.status_code": 500,
        "faas.trigger": "http",
    }
    error = {
        "exception.type": "ValueError",
        "exception.message": "no",
        "exception.stacktrace": "Traceback …",
    }
    assert [attributes_of(each) for each in told] == [
        common | invocation,
        common,
        common,
        common | error,
    ]


@pytest.mark.parametrize(
    ("level", "number"), [("debug", 5), ("info", 9), ("log", 9), ("warn", 13), ("error", 17)]
)
def test_each_level_has_its_severity(collector: Collector, level: str, number: int) -> None:
    _, line = sent_to(collector, of("acme", "hi", level=level))
    assert line.severity_number == number


@pytest.mark.parametrize(
    ("event", "title"),
    [
        (Event(kind="scheduled", cron="*/5 * * * *"), "cron */5 * * * *"),
        (Event(kind="rpc", rpc_method="add"), "rpc add"),
    ],
)
def test_other_events_have_their_own_title(collector: Collector, event: Event, title: str) -> None:
    [told] = sent_to(collector, a_record(event=event))
    assert (told.body.string_value, told.severity_text) == (title, "INFO")
    assert told.trace_id == b""


@pytest.mark.asyncio
async def test_lines_are_at_their_own_tenants_collector_and_nowhere_else(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_collector() as other, a_collector() as operator:
        monkeypatch.setenv(OPERATOR, operator.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=SECRET")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=SECRET")
        file = tenants_file(tmp_path, acme=collector.url, other=other.url)
        environ = {OPERATOR: operator.url, FILE: file}
        with (
            tracing(environ),
            logging_of_requests(environ),
            sending_worker_logs(environ) as posts,
        ):
            async with open_worker_logs(tmp_path / "logs", export=posts.take) as sink:
                for name in ("acme", "other", "third"):
                    sink.record(of(name, f"a line of {name}"))
            logging.getLogger("tenantry.test").warning("the operator's")
        url = "GET http://hello.acme.localhost/"
        assert bodies(collector) == [url, "a line of acme"]
        assert bodies(other) == [url, "a line of other"]
        assert "a line" not in str(operator.posted)
        assert "the operator's" in bodies(operator)
        for posted in (*collector.posted, *other.posted):
            assert "SECRET" not in str(posted)
        [source, _] = [attributes_of(each) for each, _ in collector.records_by_source]
        assert source == {"service.name": "tenantry-edge"}


def test_headers_of_the_file_go_with_the_logs_and_traces_stay_off(
    tmp_path: Path, collector: Collector
) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(
        f'[tenants.acme]\nlogs = "{collector.url}/v1/logs"\nheaders = {{ authorization = "mine" }}\n'
    )
    environ = {FILE: str(file)}
    with tracing(environ) as tracer, sending_worker_logs(environ) as posts:
        tracer.start_span("a span").end()
        posts.take(of("acme", "hi"))
    [posted] = collector.posted
    assert (posted.path, posted.headers["authorization"]) == ("/v1/logs", "mine")


def test_where_telemetry_is_off_no_collector_hears_anything(
    tmp_path: Path, collector: Collector
) -> None:
    environ = {FILE: tenants_file(tmp_path, acme=collector.url), "OTEL_SDK_DISABLED": "true"}
    with sending_worker_logs(environ) as posts:
        posts.take(of("acme", "hi"))
    assert not collector.posted


@pytest.mark.parametrize("how", [a_hanging_collector, a_refusing_collector])
def test_a_collector_that_is_no_good_costs_others_nothing_and_has_a_bound(
    collector: Collector, how: Callable[[], AbstractContextManager[str]]
) -> None:
    with how() as url:
        tenants = {"acme": Destination(logs=url), "other": Destination(logs=collector.url)}
        limits = PostLimits(max_waiting=10, max_batch=5, max_size=100_000)
        posts = WorkerLogPosts(TenantTraces(tenants=tenants), limits=limits)
        for _ in range(1000):
            posts.take(of("acme", "lost"))
        assert posts.statistics()["acme"].num_waiting <= 10
        posts.take(of("other", "well"))
        started_s = time.monotonic()
        posts.close(0.5)
        assert time.monotonic() - started_s < 10
    lost = posts.statistics()["acme"]
    assert lost.num_sent == lost.num_waiting == 0
    # what is on its way when the end comes is in neither count
    assert 1000 - 5 <= lost.num_dropped + lost.num_lost <= 1000
    assert bodies(collector)[1:] == ["well"]


def test_what_waits_is_bounded_by_what_it_holds_too() -> None:
    with a_hanging_collector() as url:
        tenants = {"acme": Destination(logs=url)}
        limits = PostLimits(max_waiting=1000, max_batch=1000, delay_s=60.0, max_size=10_000)
        posts = WorkerLogPosts(TenantTraces(tenants=tenants), limits=limits)
        for _ in range(100):
            posts.take(of("acme", "x" * 3000))
        statistics = posts.statistics()["acme"]
        posts.close(0.0)
    assert (statistics.num_waiting, statistics.num_dropped) == (2, 98)
