from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, StatusCode, TraceFlags

from support.collectors import a_collector, a_hanging_collector, a_refusing_collector
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.telemetry.post import PostLimits, close_all
from tenantry_runtime.telemetry.tenants import (
    Destination,
    TenantPosts,
    TenantTraces,
    of_tenant,
    read_tenant_traces,
    without_content,
)

LIMITS = PostLimits(max_waiting=10, max_batch=4, delay_s=0.01)


def a_span(**attributes: str) -> ReadableSpan:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"host.name": "secret"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    context = SpanContext(1, 2, is_remote=True, trace_flags=TraceFlags(1))
    links = [Link(context, {"tenantry.link": kind}) for kind in ("batch", "prefix")]
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    span = provider.get_tracer("test").start_span("a span", attributes=named, links=links)
    members = {"tenantry.retry.members": "grpc://n1", "error.type": "NodeLost"}
    span.add_event("tenantry.retry", members)
    span.set_status(StatusCode.ERROR, "grpc://n1 is lost")
    span.end()
    [ended] = exporter.get_finished_spans()
    return ended


def test_a_tenant_sees_nothing_of_where_things_run_nor_of_others() -> None:
    span = a_span(
        tenantry__tenant="acme",
        tenantry__decode__member="grpc://n1",
        server__address="10.0.0.1",
        gen_ai__input__messages="hi",
    )
    seen = of_tenant(span, has_content=False)
    assert dict(seen.attributes or {}) == {"tenantry.tenant": "acme"}
    assert [dict(event.attributes or {}) for event in seen.events] == [{"error.type": "NodeLost"}]
    assert [dict(link.attributes or {}) for link in seen.links] == [{"tenantry.link": "prefix"}]
    assert seen.status.status_code is StatusCode.ERROR
    assert seen.status.description is None
    assert "n1" not in seen.to_json()
    assert "secret" not in seen.to_json()
    assert seen.get_span_context() == span.get_span_context()


def test_what_was_said_goes_to_the_tenant_that_wants_it_and_not_to_the_operator() -> None:
    span = a_span(tenantry__tenant="acme", gen_ai__output__messages="hello")
    content = {"gen_ai.output.messages": "hello"}
    assert dict(of_tenant(span, has_content=True).attributes or {}).items() >= content.items()
    assert dict(without_content(span).attributes or {}) == {"tenantry.tenant": "acme"}


def with_posts(spans: Sequence[ReadableSpan], **endpoints: str) -> TenantPosts:
    tenants = {name: Destination(endpoint=url) for name, url in endpoints.items()}
    posts = TenantPosts(TenantTraces(tenants=tenants), limits=LIMITS, timeout_s=0.5)
    for span in spans:
        posts.take(span)
    close_all(posts.posts, 10.0)
    return posts


def test_each_tenant_gets_its_own_spans_and_what_is_nobodys_goes_to_none() -> None:
    with a_collector() as one, a_collector() as two:
        spans = [a_span(tenantry__tenant=name) for name in ("one", "two", "three")]
        with_posts([*spans, a_span()], one=one.url, two=two.url)
        told = [
            [attribute.value.string_value for attribute in span.attributes]
            for collector in (one, two)
            for span in collector.spans
        ]
    assert told == [["one"], ["two"]]


def test_a_collector_that_hangs_or_refuses_costs_its_own_tenant_alone() -> None:
    with (
        a_collector() as well,
        a_collector(status=503) as broken,
        a_hanging_collector() as hanging,
        a_refusing_collector() as refusing,
    ):
        names = ("well", "broken", "hanging", "refusing")
        spans = [a_span(tenantry__tenant=name) for name in names for _ in range(4)]
        posts = with_posts(
            spans, well=well.url, broken=broken.url, hanging=hanging, refusing=refusing
        )
        assert len(well.spans) == 4
    statistics = posts.statistics()
    assert {name: (each.num_sent, each.num_lost) for name, each in statistics.items()} == {
        "well": (4, 0),
        "broken": (0, 4),
        "hanging": (0, 4),
        "refusing": (0, 4),
    }


def test_content_is_for_those_who_said_so() -> None:
    tenants = {
        "quiet": Destination(endpoint="http://127.0.0.1:9"),
        "open": Destination(endpoint="http://127.0.0.1:9", content=True),
    }
    posts = TenantPosts(TenantTraces(tenants=tenants))
    shown = [posts.shows_content(TenantId(name)) for name in ("quiet", "open", "unknown")]
    close_all(posts.posts, 5.0)
    assert shown == [False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[tenants.a]\n",
        '[tenants.a]\nheaders = { a = "b" }\n',
        '[tenants.a]\nlogs = "otlp.example.com"\n',
        '[tenants.a]\nendpoint = "ftp://x"\n',
        '[tenants.a]\nendpoint = "http://x"\ncontents = true\n',
    ],
)
def test_a_file_that_says_something_else_is_refused_with_its_name(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=r"tenants\.toml"):
        read_tenant_traces(str(file))
