"""`queueRequest=true`: what is submitted, what is refused, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import sqlalchemy as sa

from support.edges import ACCOUNT, OTHER_ACCOUNT, RUN, Edge, an_edge, make_state
from support.ledgers import usage_rows
from support.plain_text import END, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.batch_attempt import answer_claim
from tenantry_runtime.edge.batch_worker import BatchWorker
from tenantry_runtime.edge.config import BatchConfig, Limits
from tenantry_runtime.edge.dialects.workers_ai import WorkersAI
from tenantry_runtime.errors import CapacityExceeded, GenerationFailed, TenantryError
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.batch_queue import Claim
from tenantry_runtime.tenancy.ledger import open_ledger

QUEUED = f"{RUN}?queueRequest=true"

PATIENCE_S = 30.0


def a_batch(num: int = 2, **fields: Any) -> dict[str, Any]:
    return {
        "requests": [
            {"prompt": f"question {n}", "external_reference": f"ref-{n}", **fields}
            for n in range(num)
        ]
    }


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the queue looked at sooner than it needs to be."""
    monkeypatch.setattr("tenantry_runtime.edge.batch_worker.POLL_S", 0.02)


@asynccontextmanager
async def a_batch_edge(
    folder: Path,
    node: FakeTokenSource | None = None,
    *,
    works: bool = True,
    limits: Limits | None = None,
) -> AsyncIterator[tuple[Edge, BatchWorker]]:
    """An edge with a ledger, and what runs its batches."""
    state = await make_state(folder)
    node = node or FakeTokenSource("an answer", END)
    async with (
        an_edge(state, node, limits=limits) as edge,
        open_ledger(edge.services.store.database, folder / "journal", max_open=10) as ledger,
    ):
        services = replace(edge.services, ledger=ledger)
        worker = BatchWorker(services, WorkersAI(), BatchConfig(max_running=4))
        async with anyio.create_task_group() as tasks:
            if works:
                tasks.start_soon(worker.run)
            yield Edge(app=build_app(services), services=services, state=state), worker
            worker.close()


async def post(edge: Edge, body: object, *, path: str = QUEUED, token: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with edge.client() as client:
        return await client.post(path, json=body, headers=headers)


async def submit(edge: Edge, body: object) -> str:
    response = await post(edge, body)
    assert response.status_code == 200, response.text
    return str(response.json()["result"]["request_id"])


async def poll(edge: Edge, batch_id: str) -> dict[str, Any]:
    response = await post(edge, {"request_id": batch_id})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()["result"]
    return result


async def completed(edge: Edge, batch_id: str) -> dict[str, Any]:
    with anyio.fail_after(PATIENCE_S):
        while True:
            result = await poll(edge, batch_id)
            if result["status"] == "complete":
                return result
            # a client has nothing else to wait for
            await anyio.sleep(0.02)


@pytest.mark.asyncio
async def test_a_batch_is_queued_and_its_answers_are_those_of_requests_by_themselves(
    tmp_path: Path,
) -> None:
    async with a_batch_edge(tmp_path) as (edge, _):
        response = await post(edge, a_batch(3))
        queued = response.json()
        assert response.headers["content-type"] == "application/json"
        assert queued["success"] is True
        assert queued["result"].keys() == {"status", "request_id", "model"}
        assert (queued["result"]["status"], queued["result"]["model"]) == ("queued", KIMI.id)

        result = await completed(edge, queued["result"]["request_id"])
        alone = (await edge.run(prompt="question 0")).json()["result"]

    assert [each["id"] for each in result["responses"]] == [0, 1, 2]
    assert [each["external_reference"] for each in result["responses"]] == [
        "ref-0",
        "ref-1",
        "ref-2",
    ]
    for each in result["responses"]:
        assert each["success"] is True
        assert each["result"]["choices"] == alone["choices"]
    one = alone["usage"]
    assert result["usage"] == {
        name: 3 * one[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }


@pytest.mark.asyncio
async def test_nobody_has_begun_is_queued(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, _):
        batch_id = await submit(edge, a_batch())
        assert await poll(edge, batch_id) == {
            "status": "queued",
            "request_id": batch_id,
            "model": KIMI.id,
        }


@pytest.mark.asyncio
async def test_what_is_being_answered_is_running_and_in_the_background(tmp_path: Path) -> None:
    goes_on = anyio.Event()
    node = FakeTokenSource("an", goes_on, " answer", END)
    async with a_batch_edge(tmp_path, node) as (edge, _):
        batch_id = await submit(edge, a_batch(1))
        await node.started.wait()
        assert (await poll(edge, batch_id))["status"] == "running"
        goes_on.set()
        await completed(edge, batch_id)
        await edge.run(prompt="hello")
    assert [submit.is_background for submit in node.submits] == [True, False]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "exactly one of 'requests' and 'request_id' is required"),
        ({"requests": [{"prompt": "a"}], "request_id": "x"}, "exactly one of"),
        ({"requests": []}, "length >= 1"),
        ({"requests": {"prompt": "a"}}, "array"),
        ({"requests": [{"prompt": "a"}], "prompt": "b"}, "unknown field 'prompt'"),
        ({"requests": [{"prompt": "a"}, 7]}, "'/requests/1': must be an object"),
        ({"requests": [{"prompt": "a"}, {"prompt": "b", "top_p": 2}]}, "'/requests/1/top_p'"),
        ({"requests": [{"prompt": "a"}, {}]}, "'/requests/1'"),
        ({"requests": [{"prompt": "a", "stream": True}]}, "'/requests/0/stream'"),
        ({"requests": [{"prompt": "a", "nonsense": 1}]}, "'/requests/0/nonsense'"),
        (
            {"requests": [{"prompt": "a", "external_reference": 7}]},
            "'/requests/0/external_reference'",
        ),
        (
            {"requests": [{"prompt": "a", "external_reference": "\0"}]},
            "'/requests/0/external_reference'",
        ),
        ({"requests": [{"prompt": "a"}] * 1001}, "more than 1000 requests"),
    ],
)
async def test_a_batch_that_is_wrong_is_refused_as_a_whole(
    tmp_path: Path, body: object, message: str
) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, _):
        response = await post(edge, body)
        assert await edge.services.store.batches.list() == []
    assert response.status_code == 400
    [error] = response.json()["errors"]
    assert error["code"] == 5006
    assert message in error["message"]


@pytest.mark.asyncio
async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False, limits=Limits(max_body_bytes=200)) as (edge, _):
        response = await post(edge, a_batch(20))
    assert (response.status_code, response.json()["errors"][0]["code"]) == (413, 3006)


@pytest.mark.asyncio
async def test_anothers_batch_is_as_unknown_as_one_that_there_is_not(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, _):
        mine = await submit(edge, a_batch())
        theirs = QUEUED.replace(f"/{ACCOUNT}/", f"/{OTHER_ACCOUNT}/")
        answers = [
            await post(edge, {"request_id": id}, path=theirs, token=edge.state.other_token)
            for id in (mine, "00000000-0000-0000-0000-000000000000", "")
        ]
        of_another_model = await post(
            edge, {"request_id": mine}, path=QUEUED.replace("kimi-k2.6", "glm-5.2")
        )
    assert {answer.status_code for answer in answers} == {400}
    assert len({answer.text for answer in (*answers, of_another_model)}) == 1


@pytest.mark.asyncio
async def test_a_token_of_another_account_submits_nothing(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, _):
        response = await post(edge, a_batch(), token=edge.state.other_token)
        assert await edge.services.store.batches.list() == []
    assert response.status_code == 403


@pytest.mark.asyncio
async def test_a_request_that_cannot_be_answered_fails_alone(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path) as (edge, _):
        requests = [
            {"prompt": "short"},
            {"prompt": "long" * 1000, "external_reference": "too long"},
        ]
        result = await completed(edge, await submit(edge, {"requests": requests}))
    good, bad = result["responses"]
    assert good["success"] is True
    assert bad["success"] is False
    assert bad["external_reference"] == "too long"
    assert "result" not in bad
    assert [error["code"] for error in bad["errors"]] == [5021]


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [CapacityExceeded(), GenerationFailed("broken")])
async def test_what_passes_by_itself_is_tried_again(
    tmp_path: Path, error: TenantryError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantry_runtime.edge.batch_worker.PAUSE_S", 0.01)
    node = FakeTokenSource(error)
    async with a_batch_edge(tmp_path, node) as (edge, _):
        batch_id = await submit(edge, a_batch(1))
        await node.started.wait()
        node._script = ("an answer", END)
        result = await completed(edge, batch_id)
        rows = await usage_rows(edge.services.store.database)
    assert result["responses"][0]["success"] is True
    billed = {name: row["output_tokens"] for name, row in rows.items() if row["output_tokens"]}
    assert len(billed) == 1
    assert next(iter(billed)).startswith(f"{batch_id}-0-")


@pytest.mark.asyncio
async def test_what_keeps_failing_has_its_failure_as_a_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantry_runtime.edge.batch_worker.PAUSE_S", 0.01)
    # the only node is left alone after some failures; no attempt is counted meanwhile
    monkeypatch.setattr("tenantry_runtime.routing.breaker.FIRST_PAUSE_S", 0.01)
    async with a_batch_edge(tmp_path, FakeTokenSource(GenerationFailed("broken"))) as (edge, _):
        result = await completed(edge, await submit(edge, a_batch(1)))
    [response] = result["responses"]
    assert response["success"] is False
    assert [error["code"] for error in response["errors"]] == [3043]


@pytest.mark.asyncio
async def test_a_tenant_at_its_limit_waits_and_has_failed_at_nothing(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, worker):
        store = edge.services.store
        await store.accounts.change(ACCOUNT, changes={("quota", "requests_per_minute"): 1})
        batch_id = await submit(edge, a_batch(2))
        requests = schema.batch_requests
        waiting = sa.select(requests.c.num_failures).where(
            requests.c.claim.is_(None), requests.c.due_ms > store.database.now_ms() + 10_000
        )
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                while True:
                    async with store.database.connect() as connection:
                        failures = (await connection.execute(waiting)).scalars().all()
                    if failures:
                        break
                    # nothing wakes who waits for a row to change
                    await anyio.sleep(0.02)
                worker.close()
        batch = await store.batches.find(batch_id)
        rows = await usage_rows(store.database)
    assert failures == [0]
    assert batch is not None
    assert (batch.num_done, len(rows)) == (1, 1)


@pytest.mark.asyncio
async def test_an_edge_that_ends_gives_back_what_it_runs_and_bills_nothing(tmp_path: Path) -> None:
    node = FakeTokenSource("endless ", endless=True)
    async with a_batch_edge(tmp_path, node, works=False) as (edge, worker):
        batch_id = await submit(edge, a_batch(2))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await node.started.wait()
            worker.close()
        store = edge.services.store
        claims = await worker.queue.claim(TenantId(ACCOUNT), 9)
        rows = await usage_rows(store.database)
    assert sorted(claim.number for claim in claims) == [0, 1]
    assert [claim.num_failures for claim in claims] == [0, 0]
    assert {row["outcome"] for row in rows.values()} <= {"edge_closing"}
    assert {row["output_tokens"] for row in rows.values()} <= {0}
    assert batch_id == claims[0].batch_id


@pytest.mark.asyncio
async def test_one_after_an_attempt_that_was_billed_costs_nothing(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, worker):
        queue = worker.queue
        await submit(edge, a_batch(1))
        [claim] = await queue.claim(TenantId(ACCOUNT), 1)
        # the response of this one is lost
        with anyio.CancelScope() as scope:
            await run_once(edge, worker, claim, scope)
        await queue.release([claim])
        [again] = await queue.claim(TenantId(ACCOUNT), 1)
        with anyio.CancelScope() as scope:
            await run_once(edge, worker, again, scope)
        rows = await usage_rows(edge.services.store.database)
    assert rows[claim.request_id]["output_tokens"] == rows[again.request_id]["output_tokens"] > 0
    assert rows[again.request_id]["output_price"] == 0


async def run_once(edge: Edge, worker: BatchWorker, claim: Claim, scope: anyio.CancelScope) -> None:
    await answer_claim(
        claim,
        edge.services,
        WorkersAI(),
        queue=worker.queue,
        closing=anyio.CancelScope(),
        attempt=scope,
    )


@pytest.mark.asyncio
async def test_other_requests_are_what_they_were(tmp_path: Path) -> None:
    async with a_batch_edge(tmp_path, works=False) as (edge, _):
        plain = await post(edge, {"prompt": "hi"}, path=f"{RUN}?queueRequest=false")
        batch = await post(edge, a_batch(), path=RUN)
    assert plain.json()["result"]["choices"]
    assert batch.status_code == 400
    assert json.loads(batch.text)["success"] is False
