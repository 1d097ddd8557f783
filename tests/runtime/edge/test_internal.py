"""Models run from inside the process: for a known principal, without a token or a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from support.edges import ACCOUNT, State, an_edge
from support.plain_text import END
from support.requests import a_body
from support.token_source import FakeTokenSource
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.internal import InternalRun, InternalRuns, RunRefused
from tenantry_runtime.tenancy import Authenticator, Principal

TENANT = TenantId(ACCOUNT)
MODEL = "kimi-k2.6"
PATIENCE_S = 30.0


@asynccontextmanager
async def some_runs(
    state: State, node: FakeTokenSource
) -> AsyncIterator[tuple[InternalRuns, Principal]]:
    async with an_edge(state, node) as edge, anyio.create_task_group() as tasks:
        principal = await Authenticator(edge.services.store).principal_of(
            TENANT, worker="w", version="v"
        )
        yield InternalRuns(edge.services, tasks), principal
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_a_run_is_answered_for_whoever_is_known_to_call(state: State) -> None:
    node = FakeTokenSource("4", f"2{END}")
    async with some_runs(state, node) as (runs, principal):
        asked = InternalRun(principal=principal, model=MODEL, body=a_body(), session="s")
        exchange = await runs.run(asked)
        result = json.loads(await exchange.read())["result"]

    assert result["choices"][0]["message"]["content"] == "42"
    [submit] = node.submits
    assert (submit.tenant, submit.session) == (ACCOUNT, "s")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"body": b"{"}, (400, 5006)),
        ({"body": a_body(stream=7)}, (400, 5006)),
        ({"model": "none"}, (400, 5007)),
        ({"model": "kimi-k2.6?queueRequest=true"}, (400, 5007)),
        ({"model": "none", "is_batch": True}, (400, 5007)),
        ({"body": b'{"request_id": "theirs"}', "is_batch": True}, (400, 5006)),
    ],
)
async def test_what_the_api_refuses_is_refused_with_status_and_code(
    state: State, fields: dict[str, Any], refused: tuple[int, int]
) -> None:
    node = FakeTokenSource(END)
    async with some_runs(state, node) as (runs, principal):
        asked = {"principal": principal, "model": MODEL, "body": a_body(), **fields}
        with pytest.raises(RunRefused) as error:
            await runs.run(InternalRun(**asked))
    assert (error.value.status, error.value.code) == refused
    assert node.submits == []


@pytest.mark.asyncio
async def test_a_run_that_nobody_waits_for_any_more_ends(state: State) -> None:
    node = FakeTokenSource("a", endless=True)
    async with some_runs(state, node) as (runs, principal):
        asked = InternalRun(principal=principal, model=MODEL, body=a_body())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.run, asked)
            await node.started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            await node.cancelled.wait()


@pytest.mark.asyncio
async def test_a_deadline_ends_a_stream_that_has_begun_with_its_error(state: State) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with some_runs(state, node) as (runs, principal):
        asked = InternalRun(
            principal=principal,
            model=MODEL,
            body=a_body(stream=True),
            deadline_s=anyio.current_time() + 0.2,
        )
        exchange = await runs.run(asked)
        printed = await exchange.read()

    assert b'"content":"a"' in printed
    assert b"[DONE]" not in printed
    assert b"3007" in printed
