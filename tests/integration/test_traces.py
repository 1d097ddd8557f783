"""Requests through an edge whose spans nobody takes: all are answered, and what is held has a bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.collectors import (
    a_collector,
    a_hanging_collector,
    a_refusing_collector,
    attributes_of,
)
from support.edges import ACCOUNT, Edge, an_edge, make_state
from support.plain_text import END
from support.token_source import FakeTokenSource
from tenantry_runtime.errors import GenerationFailed
from tenantry_runtime.pool.messages import Timings
from tenantry_runtime.telemetry import EdgeTracer, setup, tracing

ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
NUM_REQUESTS = 60
TIMINGS = Timings(1_000, 2_000, 5_000, 9_000, 1)

SMALL = {
    "OTEL_BSP_MAX_QUEUE_SIZE": "40",
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "10",
    "OTEL_BSP_SCHEDULE_DELAY": "10",
}


@contextmanager
def a_failing_collector(how: str) -> Iterator[str]:
    with ExitStack() as stack:
        match how:
            case "hangs":
                yield stack.enter_context(a_hanging_collector())
            case "refuses":
                yield stack.enter_context(a_refusing_collector())
            case _:
                yield stack.enter_context(a_collector(status=503)).url


def tenants_file(folder: Path, **endpoints: str) -> str:
    file = folder / "tenants.toml"
    lines = [f'[tenants.{name}]\nendpoint = "{url}"' for name, url in endpoints.items()]
    file.write_text("\n".join(lines))
    return str(file)


async def ask_often(edge: Edge) -> None:
    async with edge.client():
        for number in range(NUM_REQUESTS):
            response = await edge.run(stream=bool(number % 2))
            assert response.status_code == 200, response.text


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["hangs", "refuses", "is broken"])
async def test_a_collector_that_takes_nothing_breaks_no_answer_and_fills_no_memory(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = await make_state(tmp_path)
    # how long the end may take is another test's
    monkeypatch.setattr(setup, "CLOSE_S", 0.3)
    with a_failing_collector(how) as url, a_collector() as well:
        monkeypatch.setenv(ENDPOINT, url)
        file = tenants_file(tmp_path, dev=url, other=well.url)
        environ = {ENDPOINT: url, "TENANTRY_TENANT_TRACES": file, **SMALL}
        with tracing(environ) as tracer:
            assert isinstance(tracer, EdgeTracer)
            async with an_edge(
                state, FakeTokenSource(f"42{END}", timings=TIMINGS), tracer=tracer
            ) as edge:
                await ask_often(edge)
            statistics = tracer.statistics()
        assert statistics.operator is not None
        assert statistics.operator.num_waiting <= 40
        assert statistics.operator.num_sent == 0
        assert statistics.operator.num_dropped + statistics.operator.num_lost > 0
        assert statistics.tenants[ACCOUNT].num_sent == 0
        assert statistics.tenants[ACCOUNT].num_waiting <= 1024
        assert (statistics.sieve.num_traces, statistics.sieve.num_spans) == (0, 0)
        assert not well.posted, "another tenant's spans are not this one's"


@pytest.mark.asyncio
async def test_a_tenant_gets_the_stages_of_its_requests_with_nothing_of_where_they_ran(
    tmp_path: Path,
) -> None:
    state = await make_state(tmp_path)
    with a_collector() as own:
        environ = {"TENANTRY_TENANT_TRACES": tenants_file(tmp_path, dev=own.url)}
        with tracing(environ) as tracer:
            node = FakeTokenSource(f"42{END}", timings=TIMINGS)
            async with an_edge(state, node, tracer=tracer) as edge:
                await edge.run(stream=True)
        spans = {span.name: attributes_of(span) for span in own.spans}
    assert set(spans) == {
        *("tokenize", "admit", "route", "queue", "prefill", "decode"),
        "chat @cf/moonshotai/kimi-k2.6",
    }
    for attributes in spans.values():
        assert attributes["tenantry.tenant"] == ACCOUNT
        assert "tenantry.prefill.member" not in attributes
        assert "tenantry.decode.member" not in attributes


@pytest.mark.asyncio
async def test_a_request_that_fails_is_kept_where_nothing_is_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = await make_state(tmp_path)
    with a_collector() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        environ = {ENDPOINT: collector.url, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}
        with tracing(environ) as tracer:
            node = FakeTokenSource(f"42{END}", timings=TIMINGS)
            async with an_edge(state, node, tracer=tracer) as edge:
                await edge.run()
            async with an_edge(
                state, FakeTokenSource("a", GenerationFailed("x")), tracer=tracer
            ) as edge:
                assert (await edge.run()).status_code == 500
        names = [span.name for span in collector.spans]
    assert names.count("chat @cf/moonshotai/kimi-k2.6") == 1
    assert names.count("tokenize") == 1
