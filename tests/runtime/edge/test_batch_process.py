"""A batch outlives the edge that runs it: killed in the middle, it goes on where it was."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.edge_process import MODELS, EdgeProcess, a_scripted_node, an_edge_process
from support.edges import RUN
from support.ledgers import usage_rows
from tenantry_runtime.tenancy import open_store
from tenantry_runtime.tenancy.ledger import JOURNAL_DIRECTORY, open_ledger

pytestmark = pytest.mark.cluster

QUEUED = f"{RUN}?queueRequest=true"

NUM_REQUESTS = 12
MAX_TOKENS = 20
BATCHES = {"max_running": 4, "lease_s": 1.0}
PATIENCE_S = 60.0


def settings(folder: Path, store: str | None) -> dict[str, Any]:
    """Return what an edge is started with: a catalog with prices, and short leases."""
    prices = {"input": 0.95, "output": 4.0}
    models = [
        {"id": name, "aliases": [name.split("/")[-1]], "directory": str(at), "prices": prices}
        for name, at in MODELS.items()
    ]
    (folder / "priced.json").write_text(json.dumps({"models": models}))
    return {"store": store, "catalog": "priced.json", "batches": BATCHES}


async def poll(edge: EdgeProcess, batch_id: str) -> dict[str, Any]:
    async with edge.client() as client:
        response = await client.post(QUEUED, json={"request_id": batch_id})
    result: dict[str, Any] = response.json()["result"]
    return result


async def until_done(folder: Path, url: str | None, batch_id: str, num: int) -> None:
    """Wait until so many requests have a response."""
    async with open_store(folder / "state", url=url) as store:
        with anyio.fail_after(PATIENCE_S):
            while True:
                batch = await store.batches.find(batch_id)
                if batch is not None and batch.num_done >= num:
                    return
                # nothing wakes who waits for a row to change
                await anyio.sleep(0.01)


@pytest.mark.asyncio
async def test_every_request_is_answered_once_though_the_edge_is_killed_in_the_middle(
    tmp_path: Path, database_url: str | None
) -> None:
    configured = settings(tmp_path, database_url)
    async with a_scripted_node(tmp_path, "word ", step_s=0.02):
        async with an_edge_process(tmp_path, **configured) as edge:
            requests = [
                {"prompt": f"{n}", "max_tokens": MAX_TOKENS, "external_reference": f"ref-{n}"}
                for n in range(NUM_REQUESTS)
            ]
            async with edge.client() as client:
                response = await client.post(QUEUED, json={"requests": requests})
            batch_id = response.json()["result"]["request_id"]
            await until_done(tmp_path, database_url, batch_id, 5)
            await edge.end(signal.SIGKILL)
        async with an_edge_process(tmp_path, **configured) as edge:
            await until_done(tmp_path, database_url, batch_id, NUM_REQUESTS)
            result = await poll(edge, batch_id)
            assert await edge.end() == 0

    assert [each["id"] for each in result["responses"]] == list(range(NUM_REQUESTS))
    assert [each["external_reference"] for each in result["responses"]] == [
        f"ref-{n}" for n in range(NUM_REQUESTS)
    ]
    assert all(each["success"] for each in result["responses"])
    assert result["usage"]["completion_tokens"] == NUM_REQUESTS * MAX_TOKENS

    async with open_store(tmp_path / "state", url=database_url) as store:
        # what the one that was killed has left
        async with open_ledger(store.database, tmp_path / "state" / JOURNAL_DIRECTORY, max_open=1):
            pass
        rows = await usage_rows(store.database)
    attempts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for request_id, row in rows.items():
        attempts[request_id.rpartition("-")[0]].append(row)
        assert row["output_tokens"] == (MAX_TOKENS if row["outcome"] == "length" else 0)
    assert attempts.keys() == {f"{batch_id}-{n}" for n in range(NUM_REQUESTS)}
    for mine in attempts.values():
        assert sum(row["cost"] > 0 for row in mine) == 1, "not paid for once"
    assert len(rows) > NUM_REQUESTS, "it was not in the middle"
