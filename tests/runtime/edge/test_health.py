from __future__ import annotations

import sqlite3
from pathlib import Path

import httpx
import pytest

from support.edges import State, an_edge, make_state
from support.plain_text import GLM, KIMI
from support.token_source import FakeTokenSource
from tenantry_runtime.pool.messages import NodeDescription


@pytest.mark.asyncio
async def test_a_process_that_turns_is_healthy_whatever_its_node_does(state: State) -> None:
    node = FakeTokenSource()
    node.is_healthy = False
    async with an_edge(state, node) as edge:
        response = await edge.get("/health")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.asyncio
async def test_an_edge_is_ready_when_every_model_is_served(state: State) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        response = await edge.get("/ready")

    assert response.status_code == 200
    assert response.json() == {
        "ready": True,
        "store": True,
        "models": {KIMI.id: True, GLM.id: True},
    }


@pytest.mark.asyncio
async def test_an_edge_without_its_node_is_not_ready(state: State) -> None:
    node = FakeTokenSource(models=[KIMI.id])
    async with an_edge(state, node) as edge:
        response = await edge.get("/ready")

    assert response.status_code == 503
    assert response.json()["models"] == {KIMI.id: True, GLM.id: False}


@pytest.mark.asyncio
async def test_a_model_whose_phases_are_on_two_nodes_is_served_while_both_are_there(
    state: State,
) -> None:
    nodes = [FakeTokenSource(phases=["prefill"]), FakeTokenSource(phases=["decode"])]
    async with an_edge(state, nodes) as edge:
        assert (await edge.get("/ready")).status_code == 200

        nodes[1].is_healthy = False
        assert (await edge.get("/ready")).status_code == 503


@pytest.mark.asyncio
async def test_an_edge_without_its_store_is_not_ready(tmp_path: Path) -> None:
    state = await make_state(tmp_path)
    async with an_edge(state, FakeTokenSource()) as edge:
        connection = sqlite3.connect(tmp_path / "tenantry.db")
        connection.executescript("DROP TABLE tokens; DROP TABLE accounts")
        connection.close()
        response = await edge.get("/ready")

    assert response.status_code == 503
    assert (response.json()["ready"], response.json()["store"]) == (False, False)


@pytest.mark.asyncio
async def test_a_bug_in_a_route_is_an_error_in_the_envelope(state: State) -> None:
    class Buggy(FakeTokenSource):
        @property
        def description(self) -> NodeDescription:
            raise ZeroDivisionError("by a bug")

    async with an_edge(state, Buggy()) as edge:
        transport = httpx.ASGITransport(edge.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
            response = await client.get("/ready")

    assert response.status_code == 500
    assert response.json()["errors"] == [{"code": 3043, "message": "Internal server error"}]


@pytest.mark.asyncio
async def test_an_edge_that_is_ending_is_not_ready(state: State) -> None:
    async with an_edge(state, FakeTokenSource()) as edge:
        edge.services.open_requests.close()
        response = await edge.get("/ready")

    assert response.status_code == 503
