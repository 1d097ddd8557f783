"""What is recorded of requests: values that follow from what was told, with the conventions' names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as gen_ai
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import NoOpTracer

from tenantry_runtime.core import (
    FinishReason,
    GenerateRequest,
    Message,
    RequestId,
    Sampling,
    TenantId,
    Usage,
)
from tenantry_runtime.errors import QuotaExceeded
from tenantry_runtime.pool.messages import Timings
from tenantry_runtime.telemetry import ClientGone, Journey, RequestSpan
from tenantry_runtime.telemetry.metrics import METRICS, Ended, RequestMeter, TopTenants

MODEL = "@cf/moonshotai/kimi-k2.6"
USAGE = Usage(prompt_tokens=100, completion_tokens=11, cached_tokens=64)


class Recorded:
    """A meter, and what it has recorded."""

    def __init__(self, *, top: int = 20) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader])
        self.meter = RequestMeter(self._provider.get_meter("test"), tenants=TopTenants(top))

    def points(self, name: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        [scope] = data.resource_metrics[0].scope_metrics
        return [
            point
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def counts(self, name: str, label: str) -> dict[Any, float]:
        return {point.attributes[label]: point.value for point in self.points(name)}

    def close(self) -> None:
        self._provider.shutdown()


@contextmanager
def recording(*, top: int = 20) -> Iterator[Recorded]:
    recorded = Recorded(top=top)
    try:
        yield recorded
    finally:
        recorded.close()


def ended(tenant: str = "acme", *, error: str | None = None, usage: Usage = USAGE) -> Ended:
    return Ended(
        operation="chat",
        model=MODEL,
        tenant=tenant,
        duration_s=2.5,
        first_token_s=0.5,
        usage=usage,
        error=error,
    )


def test_a_whole_answer_is_recorded_as_the_conventions_have_it() -> None:
    with recording() as recorded:
        recorded.meter.ended(ended())
        [duration] = recorded.points("gen_ai.server.request.duration")
        [first] = recorded.points("gen_ai.server.time_to_first_token")
        [between] = recorded.points("gen_ai.server.time_per_output_token")
    assert duration.sum == 2.5
    assert first.sum == 0.5
    # (duration - time to first token) / (output tokens - 1)
    assert between.sum == pytest.approx(0.2)
    assert dict(duration.attributes) == {
        gen_ai.GEN_AI_OPERATION_NAME: "chat",
        gen_ai.GEN_AI_PROVIDER_NAME: "tenantry",
        gen_ai.GEN_AI_REQUEST_MODEL: MODEL,
    }
    # as published: 0.01, doubled thirteen times
    assert duration.explicit_bounds == tuple(pytest.approx(0.01 * 2**n) for n in range(14))


def test_tokens_are_counted_once_each_by_kind() -> None:
    with recording() as recorded:
        recorded.meter.ended(ended())
        recorded.meter.ended(ended())
        tokens = recorded.counts("tenantry.tokens", "kind")
    assert tokens == {"input": 2 * 36, "cached": 2 * 64, "output": 2 * 11}


def test_an_answer_that_broke_off_counts_its_tokens_and_no_latency() -> None:
    with recording() as recorded:
        recorded.meter.ended(ended(error="NodeLost"))
        [duration] = recorded.points("gen_ai.server.request.duration")
        assert recorded.points("gen_ai.server.time_to_first_token") == []
        assert recorded.counts("tenantry.requests", "outcome") == {"NodeLost": 1}
        assert recorded.counts("tenantry.tokens", "kind")["output"] == 11
    assert duration.attributes["error.type"] == "NodeLost"


def test_a_tenant_without_a_label_of_its_own_is_one_of_the_others() -> None:
    with recording(top=2) as recorded:
        for tenant in ("a", "b", "c", "d"):
            recorded.meter.ended(ended(tenant))
        assert recorded.counts("tenantry.requests", "tenant") == {"a": 1, "b": 1, "other": 2}


def test_who_uses_much_gets_the_label_of_who_uses_least() -> None:
    top = TopTenants(1)
    assert top.label("small", 10) == "small"
    assert top.label("large", 15) == "other"
    assert top.label("large", 15) == "large"
    assert top.label("small", 0) == "other"


def test_a_thousand_tenants_are_few_labels_and_little_memory() -> None:
    top = TopTenants(5)
    labels = {top.label(f"t{n % 1000}", 1 + n % 7) for n in range(20_000)}
    assert "other" in labels
    assert len(top._named) == 5
    assert len(top._weights) <= 40


def a_span(meter: RequestMeter) -> RequestSpan:
    span = RequestSpan(
        NoOpTracer(),
        headers={},
        method="POST",
        route="/",
        server=None,
        request_id=RequestId("r"),
        meter=meter,
    )
    request = GenerateRequest(
        model=MODEL, sampling=Sampling(seed=1), messages=(Message(role="user", content="hi"),)
    )
    span.asked(request, model="kimi-k2.6", tenant=TenantId("acme"))
    return span


def test_spans_and_metrics_are_told_the_same() -> None:
    with recording() as recorded:
        span = a_span(recorded.meter)
        span.used(USAGE)
        now_ns = span._started_ns
        timings = Timings(now_ns, now_ns, now_ns + 250_000_000, now_ns + 500_000_000, 1)
        span.finished([FinishReason.STOP], response_id="r", timings=timings)
        span.end(status=200)
        [first] = recorded.points("gen_ai.server.time_to_first_token")
        assert first.sum == pytest.approx(0.25)
        assert recorded.counts("tenantry.requests", "outcome") == {"ok": 1}
        assert recorded.counts("tenantry.refusals", "reason") == {}


def test_a_clock_that_is_set_back_meanwhile_makes_no_time_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recording() as recorded:
        span, journey = a_span(recorded.meter), Journey()
        monkeypatch.setattr("time.time_ns", lambda: 0)
        journey.has_token()
        span.follow([journey])
        span.used(USAGE)
        span.end(status=200)
        [first] = recorded.points("gen_ai.server.time_to_first_token")
        [duration] = recorded.points("gen_ai.server.request.duration")
    assert 0 <= first.sum <= duration.sum < 60


def test_what_a_limit_refuses_is_counted_by_its_reason() -> None:
    with recording() as recorded:
        span = a_span(recorded.meter)
        span.failed(QuotaExceeded(limit="neurons", retry_after_s=5))
        span.end(status=429)
        gone = a_span(recorded.meter)
        gone.used(USAGE)
        gone.failed(ClientGone())
        gone.end(status=200)
        assert recorded.counts("tenantry.refusals", "reason") == {"QuotaExceeded": 1}
        assert recorded.counts("tenantry.requests", "outcome") == {
            "QuotaExceeded": 1,
            "ClientGone": 1,
        }


def test_every_metric_is_named_once_with_a_unit_and_words() -> None:
    assert all(metric.unit and metric.description for metric in METRICS.values())
    assert all(metric.buckets for metric in METRICS.values() if metric.kind == "histogram")
