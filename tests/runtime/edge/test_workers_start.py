"""Whether an edge starts where isolates cannot be confined, and what it then says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.edges import ACCOUNT, an_edge, make_state
from support.token_source import FakeTokenSource
from support.worker_routes import a_version
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.workers import open_workers
from tenantry_runtime.edge.workers_config import WorkersConfig
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.workers.interface import LoadError
from tenantry_runtime.workers.sandbox import Interpreter, Layers, SandboxTooWeak

pytestmark = pytest.mark.asyncio

NOTHING = Layers(
    own_namespaces=False,
    user_namespace=False,
    own_users=False,
    landlock=0,
    filter=True,
    problems=(("landlock", "this kernel has none"),),
)


async def finds_nothing(_: Interpreter) -> Layers:
    return NOTHING


@asynccontextmanager
async def started(folder: Path, config: WorkersConfig) -> AsyncIterator[Any]:
    state = await make_state(folder)
    async with (
        an_edge(state, FakeTokenSource()) as edge,
        open_workers(config, edge.services, folder, probe=finds_nothing) as workers,
    ):
        app = workers.in_front_of(
            build_app(edge.services, workers.routes(), workers.engine is not None)
        )
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://edge", headers=state.headers
        ) as client:
            yield workers, client


async def test_below_the_floor_an_edge_does_not_start_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    with pytest.raises(SandboxTooWeak) as refused:
        async with started(tmp_path, WorkersConfig()):
            pass
    told = str(refused.value)
    assert "below the floor 'user-namespace'" in told
    assert "--unsafe-no-sandbox" in told
    assert "workerctl sandbox probe" in told


async def test_where_workers_are_optional_models_are_served_and_deploys_refused(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, WorkersConfig(is_optional=True)) as (workers, client):
        assert (await client.get("/ready")).json()["workers"] is False
        listed = await client.get(f"/client/v4/accounts/{ACCOUNT}/ai/models/search")
        assert listed.status_code == 200
        with pytest.raises(LoadError) as refused:
            await workers.control.startup.try_load(a_version())
    assert "below the floor 'user-namespace'" in refused.value.message


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (WorkersConfig(interpreter="/nowhere/python"), "/nowhere/python"),
        (WorkersConfig(engine={"max_isolate": 1}), "workers.engine: "),
    ],
)
async def test_what_cannot_be_used_is_an_error_of_the_configuration(
    tmp_path: Path, config: WorkersConfig, told: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        async with started(tmp_path, config):
            pass
    assert told in str(refused.value)


async def test_what_else_is_asked_of_the_control_plane_needs_a_token_to_deploy(
    tmp_path: Path,
) -> None:
    async with started(tmp_path, WorkersConfig(is_optional=True)) as (_, client):
        # the account's own token is for models alone
        response = await client.get(f"/client/v4/accounts/{ACCOUNT}/workers/scripts/x/logs")
    assert response.status_code in (401, 403)
