"""Whole requests through a real server: what the worker sees, and what the client is told."""

from __future__ import annotations

import re

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from support.worker_routes import ACCOUNT, TableSource, a_routed_edge, answering, deployed
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.worker_routes import RouteLimits
from tenantry_runtime.errors import AccountSuspended, StoreUnavailable
from tenantry_runtime.workers.interface import (
    HttpRequest,
    HttpResponse,
    Invocation,
    WorkerFailed,
)
from tenantry_runtime.workers.outcome import Outcome

pytestmark = pytest.mark.asyncio

OTHER = TenantId("other")


async def test_a_worker_is_called_by_its_host_with_the_url_as_it_is() -> None:
    async with a_routed_edge(answering()) as edge:
        response = await edge.get("/a%2Fb?c=d%20e&f", "hello.acme.localhost:8787")
    assert (response.status_code, response.content) == (200, b"hello")
    (version, request, _) = edge.engine.requests[0]
    assert version.worker == "hello"
    assert request.url == "http://hello.acme.localhost:8787/a%2Fb?c=d%20e&f"


async def test_a_worker_is_called_by_path_and_sees_the_rest_of_it() -> None:
    async with a_routed_edge(answering()) as edge:
        response = await edge.get("/workers/acme/hello/x?y", "127.0.0.1:8787")
    assert response.status_code == 200
    (_, request, _) = edge.engine.requests[0]
    assert request.url == "http://127.0.0.1:8787/x?y"
    assert dict(request.headers)["x-forwarded-prefix"] == "/workers/acme/hello"


async def test_a_worker_is_called_by_a_configured_route_even_if_it_has_no_url() -> None:
    source = TableSource(
        {(ACCOUNT, "hello"): deployed(has_url=False)},
        {("shop.example", "/v1/cart"): (ACCOUNT, "hello")},
    )
    async with a_routed_edge(answering(), source=source) as edge:
        routed = await edge.get("/v1/cart", "shop.example:8787")
        by_host = await edge.get("/")
        by_path = await edge.get("/workers/acme/hello", "127.0.0.1")
    assert routed.content == b"hello"
    assert edge.engine.requests[0][1].url == "http://shop.example:8787/v1/cart"
    assert by_host.status_code == by_path.status_code == 404


async def test_a_route_at_the_host_of_a_worker_without_a_url_leads_where_it_says() -> None:
    source = TableSource(
        {
            (ACCOUNT, "shop"): deployed(has_url=False, worker="shop"),
            (ACCOUNT, "store"): deployed(worker="store"),
        },
        {("shop.acme.localhost", "/"): (ACCOUNT, "store")},
    )
    async with a_routed_edge(answering(), source=source) as edge:
        assert (await edge.get("/", "shop.acme.localhost")).status_code == 200
    assert edge.engine.requests[0][0].worker == "store"


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("127.0.0.1", "/"),
        ("localhost", "/v1/models"),
        ("acme.localhost", "/"),
        ("shop.example", "/elsewhere"),
    ],
)
async def test_all_else_is_the_edges_own(host: str, path: str) -> None:
    async with a_routed_edge(answering()) as edge:
        assert (await edge.get(path, host)).content == b"the edge's own"
    assert edge.engine.requests == []


async def test_an_unknown_worker_is_named_in_a_404_that_says_what_to_do() -> None:
    async with a_routed_edge(answering()) as edge:
        told = await edge.get("/", "other.acme.localhost")
        page = await edge.get(
            "/", "other.acme.localhost", headers={"accept": "text/html,application/xhtml+xml"}
        )
    assert told.status_code == page.status_code == 404
    body = told.json()
    assert body["success"] is False
    assert body["errors"][0]["message"] == "There is no worker other in account acme"
    assert "workerctl deploy" in body["hint"]
    assert body["ray"] == told.headers["cf-ray"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "There is no worker other in account acme" in page.text


async def test_headers_of_the_connection_and_of_the_edge_do_not_reach_the_worker() -> None:
    async with a_routed_edge(answering()) as edge:
        await edge.get(
            headers={
                "connection": "keep-alive, x-secret-hop",
                "x-secret-hop": "1",
                "te": "trailers",
                "cf-ray": "forged",
                "cf-connecting-ip": "8.8.8.8",
                "authorization": "Bearer the-workers-own",
                "x-session-affinity": "ses_1",
                "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
            }
        )
    (_, request, invocation) = edge.engine.requests[0]
    names = [name for name, _ in request.headers]
    assert {"connection", "x-secret-hop", "te"}.isdisjoint(names)
    seen = dict(request.headers)
    assert names.count("cf-ray") == 1
    assert seen["cf-ray"] == invocation.id
    assert seen["cf-connecting-ip"] == "127.0.0.1" == invocation.client_ip
    assert seen["authorization"] == "Bearer the-workers-own"
    assert invocation.session == "ses_1"
    assert invocation.traceparent == f"00-{'a' * 32}-{'b' * 16}-01"


async def test_a_request_without_a_trace_begins_one() -> None:
    async with a_routed_edge(answering()) as edge:
        await edge.get()
        await edge.get()
    first, second = (invocation for _, _, invocation in edge.engine.requests)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", first.traceparent)
    assert first.id.replace("-", "") in first.traceparent
    assert first.traceparent != second.traceparent


async def test_cookies_come_one_by_one_and_headers_of_the_connection_not_at_all() -> None:
    headers = [
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("X-Mixed", "caf\xe9"),
        ("connection", "close"),
        ("transfer-encoding", "gzip"),
        ("content-length", "999"),
        ("cf-ray", "forged"),
    ]
    async with a_routed_edge(answering(headers=headers)) as edge:
        response = await edge.get()
    assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert response.headers["x-mixed"] == "caf\xe9"
    assert response.headers["content-length"] == "5"
    assert "transfer-encoding" not in response.headers
    assert response.headers.get_list("cf-ray") == [edge.engine.requests[0][2].id]


@pytest.mark.parametrize(
    "header", [("bad name", "x"), ("x", "a\r\nset-cookie: evil"), ("x", "\u20ac")]
)
async def test_a_header_that_http_does_not_have_is_the_workers_fault(
    header: tuple[str, str],
) -> None:
    async with a_routed_edge(answering(headers=[header])) as edge:
        response = await edge.get()
    assert response.status_code == 500
    assert response.json()["outcome"] == "exception"


async def test_headers_that_no_proxy_would_take_are_the_workers_fault() -> None:
    async with a_routed_edge(answering(headers=[("x", "a" * 60_000)])) as edge:
        assert (await edge.get()).status_code == 200
    async with a_routed_edge(answering(headers=[("x", "a" * 70_000)] * 2)) as edge:
        response = await edge.get()
    assert (response.status_code, response.json()["outcome"]) == (500, "exception")


async def test_a_cold_start_is_said_in_server_timing() -> None:
    async with a_routed_edge(answering(cold_start_ms=4.25)) as edge:
        cold = await edge.get()
    async with a_routed_edge(answering()) as edge:
        warm = await edge.get()
    assert cold.headers["server-timing"].endswith("cold;dur=4.25")
    assert "cold" not in warm.headers["server-timing"]
    assert warm.headers["server-timing"].startswith("worker;dur=")


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        (Outcome.EXCEPTION, 500, 1101),
        (Outcome.CRASHED, 500, 1101),
        (Outcome.NEVER_RESPONDS, 500, 1101),
        (Outcome.LOAD_FAILED, 500, 1101),
        (Outcome.VIOLATION, 500, 1101),
        (Outcome.RESPONSE_TOO_LARGE, 500, 1101),
        (Outcome.OK, 500, 1101),
        (Outcome.EXCEEDED_CPU, 503, 1102),
        (Outcome.EXCEEDED_MEMORY, 503, 1102),
        (Outcome.EXCEEDED_WALL, 503, 1102),
        (Outcome.OVERLOADED, 503, 1105),
        (Outcome.UNRESPONSIVE, 503, 1105),
        (Outcome.CANCELED, 503, 1105),
        (Outcome.INTERNAL, 503, 1105),
    ],
)
async def test_an_outcome_is_named_with_the_worker_and_never_with_what_it_said(
    outcome: Outcome, status: int, code: int
) -> None:
    async def fails(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        raise WorkerFailed(outcome, "SECRET in entry.py, line 3", retry_after_s=7)

    async with a_routed_edge(fails) as edge:
        told = await edge.get()
        page = await edge.get(headers={"accept": "text/html"})
    assert told.status_code == page.status_code == status
    assert told.json()["errors"][0]["code"] == code
    assert told.json()["outcome"] == outcome.value
    assert told.headers["retry-after"] == "7"
    for text in (told.text, page.text):
        assert "hello" in text
        assert "workerctl tail hello" in text
        assert "SECRET" not in text


async def test_a_bug_of_the_edge_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        raise RuntimeError("SECRET")

    async with a_routed_edge(fails) as edge:
        told = await edge.get()
    assert told.status_code == 500
    assert "SECRET" not in told.text
    assert "RuntimeError: SECRET" in caplog.text


@pytest.mark.parametrize(
    ("problem", "status"), [(StoreUnavailable("away"), 503), (AccountSuspended(), 403)]
)
async def test_a_worker_that_cannot_be_found_now_says_so(problem: Exception, status: int) -> None:
    async with a_routed_edge(answering(), source=TableSource(problem=problem)) as edge:
        assert (await edge.get()).status_code == status
        assert (await edge.get("/", "127.0.0.1")).content == b"the edge's own"


async def test_a_url_and_headers_over_their_limits_are_refused() -> None:
    limits = RouteLimits(max_url_bytes=1000, max_header_bytes=2000)
    async with a_routed_edge(answering(), limits=limits) as edge:
        assert (await edge.get("/" + "a" * 999)).status_code == 200
        assert (await edge.get("/" + "a" * 1000)).status_code == 414
        assert (await edge.get(headers={"x": "a" * 2000})).status_code == 431


async def test_over_the_limit_of_requests_there_is_no_place() -> None:
    async with a_routed_edge(answering(), limits=RouteLimits(max_requests=1)) as edge:
        with edge.parts.open_requests.admit():
            full = await edge.get()
        assert (await edge.get()).status_code == 200
    assert full.status_code == 503
    assert full.headers["retry-after"] == "1"


async def test_an_account_that_has_its_places_leaves_those_of_others() -> None:
    source = TableSource({(ACCOUNT, "hello"): deployed(), (OTHER, "hello"): deployed()})
    limits = RouteLimits(max_requests_each=1)
    async with a_routed_edge(answering(), limits=limits, source=source) as edge:
        with edge.parts.accounts.admit(ACCOUNT):
            assert (await edge.get()).status_code == 503
            assert (await edge.get("/", "hello.other.localhost")).status_code == 200
        assert (await edge.get()).status_code == 200


async def test_where_the_origin_is_shared_no_cookie_comes_or_goes_and_pages_are_in_a_sandbox() -> (
    None
):
    headers = [
        ("set-cookie", "a=1"),
        ("clear-site-data", "*"),
        ("service-worker-allowed", "/"),
        ("content-type", "text/html"),
    ]
    cookie = {"cookie": "tenantry_console=SECRET", "x-other": "1"}
    async with a_routed_edge(answering(headers=headers)) as edge:
        shared = await edge.get("/workers/acme/hello/", "127.0.0.1", headers=cookie)
        own = await edge.get("/", headers=cookie)
    assert {"set-cookie", "clear-site-data", "service-worker-allowed"}.isdisjoint(shared.headers)
    policy = shared.headers["content-security-policy"]
    assert policy.startswith("sandbox ")
    assert "allow-same-origin" not in policy
    assert shared.headers["content-type"] == "text/html"
    assert "content-security-policy" not in own.headers
    assert own.headers["set-cookie"] == "a=1"
    (_, of_shared, _), (_, of_own, _) = edge.engine.requests
    assert "cookie" not in dict(of_shared.headers)
    assert dict(of_shared.headers)["x-other"] == "1"
    assert dict(of_own.headers)["cookie"] == "tenantry_console=SECRET"


@pytest.mark.parametrize("status", [204, 304])
async def test_a_response_without_a_body_has_none(status: int) -> None:
    async with a_routed_edge(answering(b"not to be sent", status)) as edge:
        response = await edge.get()
    assert (response.status_code, response.content) == (status, b"")


async def test_head_has_the_length_of_what_get_would_send() -> None:
    async with a_routed_edge(answering()) as edge:
        response = await edge.get(method="HEAD")
    assert response.content == b""
    assert response.headers["content-length"] == "5"


async def test_a_traced_request_is_a_span_and_the_worker_is_inside_it(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    async with a_routed_edge(answering(status=201), tracer=tracer) as edge:
        await edge.get(headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"})
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["tenantry.worker"] == "hello"
    assert span.attributes["http.response.status_code"] == 201
    assert span.parent is not None
    assert format(span.parent.span_id, "016x") == "b" * 16
    (_, _, invocation) = edge.engine.requests[0]
    context = span.get_span_context()
    assert context is not None
    assert invocation.traceparent == f"00-{'a' * 32}-{context.span_id:016x}-01"


async def test_a_traced_request_that_fails_says_how(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    async def fails(request: HttpRequest, invocation: Invocation) -> HttpResponse:
        raise WorkerFailed(Outcome.EXCEEDED_CPU, "too much")

    async with a_routed_edge(fails, tracer=tracer) as edge:
        await edge.get()
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["error.type"] == "exceededCpu"
    assert not span.status.is_ok


async def test_a_developers_url_runs_a_trigger_where_it_may() -> None:
    async with a_routed_edge(answering(), test_scheduled=True) as edge:
        ran = await edge.get("/__scheduled?cron=*/5+*+*+*+*")
    async with a_routed_edge(answering()) as other:
        await other.get("/__scheduled?cron=*/5+*+*+*+*")
    assert ran.text == "Ran scheduled event"
    assert [cron for _, cron, _ in edge.engine.scheduled_calls] == ["*/5 * * * *"]
    assert other.engine.scheduled_calls == []
    assert other.engine.requests[0][1].url.endswith("/__scheduled?cron=*/5+*+*+*+*")
