"""Ledger, limits, traces and deadlines are the same in every dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from support.edges import ACCOUNT, RUN, Edge, State, an_edge, make_state
from support.ledgers import usage_rows
from support.openai_calls import MINIMAL, ROOT, events
from support.plain_text import END, KIMI
from support.requests import USER
from support.token_source import FakeTokenSource
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.ledger import open_ledger

BODIES: dict[str, dict[str, Any]] = {
    RUN: {"messages": [USER]},
    **{f"{ROOT}/{route}": body for route, body in MINIMAL.items()},
}

every_path = pytest.mark.parametrize("path", list(BODIES))


async def post(edge: Edge, path: str, **fields: Any) -> httpx.Response:
    async with edge.client() as client:
        return await client.post(path, json={**BODIES[path], **fields})


@asynccontextmanager
async def a_recording_edge(folder: Path, *script: str) -> AsyncIterator[Edge]:
    state = await make_state(folder)
    async with (
        an_edge(state, FakeTokenSource(*script, cached_tokens=3)) as edge,
        open_ledger(edge.services.store.database, folder / "journal", max_open=10) as ledger,
    ):
        services = replace(edge.services, ledger=ledger)
        yield Edge(app=build_app(services), services=services, state=state)


def usage(response: httpx.Response, *, stream: bool) -> Any:
    """Return what an answer says of its tokens, in OpenAI's older names."""
    if stream:
        *_, last = [record for record in events(response) if record != "[DONE]"]
    else:
        last = response.json()
    told = last.get("response", last.get("result", last))["usage"]
    return [
        told.get("prompt_tokens", told.get("input_tokens")),
        told.get("completion_tokens", told.get("output_tokens")),
    ]


@every_path
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.asyncio
async def test_a_record_is_what_the_answer_says(tmp_path: Path, path: str, stream: bool) -> None:
    fields: dict[str, Any] = {"stream": stream}
    if stream and "responses" not in path:
        fields["stream_options"] = {"include_usage": True}
    async with a_recording_edge(tmp_path, "ab", f"c{END}") as edge:
        response = await post(edge, path, **fields)
        [row] = (await usage_rows(edge.services.store.database)).values()

    assert response.status_code == 200
    assert row["request_id"] == response.headers["cf-ai-req-id"]
    assert (row["account_id"], row["model"], row["cached_tokens"]) == (ACCOUNT, KIMI.id, 3)
    assert [row["input_tokens"], row["output_tokens"]] == usage(response, stream=stream)
    assert row["output_tokens"] == 4


@every_path
@pytest.mark.asyncio
async def test_a_tenants_limits_hold_whichever_way_it_asks(tmp_path: Path, path: str) -> None:
    state = await make_state(tmp_path / "state")
    async with open_store(state.directory) as store:
        await store.accounts.change(ACCOUNT, changes={("quota", "requests_per_minute"): 1})
    async with an_edge(state, FakeTokenSource(END)) as edge:
        allowed = await post(edge, path)
        refused = await post(edge, path)
        elsewhere = await post(edge, RUN)

    assert allowed.status_code == 200
    assert allowed.headers["ratelimit"].startswith('"requests";r=0;')
    for response in (refused, elsewhere):
        assert response.status_code == 429
        assert response.json()["errors"][0]["code"] == 3021
        assert int(response.headers["retry-after"]) > 0


@every_path
@pytest.mark.asyncio
async def test_a_trace_names_route_model_and_answer(
    state: State, tracer: Tracer, exporter: InMemorySpanExporter, path: str
) -> None:
    async with an_edge(state, FakeTokenSource(END), tracer=tracer) as edge:
        response = await post(edge, path)

    root = exporter.get_finished_spans()[-1]
    seen = root.attributes or {}
    body = response.json()
    route = path.replace(ACCOUNT, "{account}").replace("kimi-k2.6", "{model:path}")
    assert seen["http.route"] == route
    assert root.name.endswith(KIMI.id)
    assert seen["gen_ai.response.id"] == body.get("result", body)["id"]


@every_path
@pytest.mark.asyncio
async def test_an_answer_that_takes_too_long_is_given_up(state: State, path: str) -> None:
    node = FakeTokenSource("a", endless=True)
    async with an_edge(state, node, limits=Limits(request_timeout_s=0.05)) as edge:
        response = await post(edge, path)

    assert response.status_code == 408
    assert response.json()["errors"][0]["code"] == 3007
    assert node.cancelled.is_set()


@every_path
@pytest.mark.asyncio
async def test_a_body_over_the_limit_is_refused(state: State, path: str) -> None:
    async with an_edge(state, FakeTokenSource(END), limits=Limits(max_body_bytes=100)) as edge:
        response = await post(edge, path, user="u" * 200)

    assert response.status_code == 413
    assert response.json()["errors"][0]["code"] == 3006
