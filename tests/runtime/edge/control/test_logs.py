"""What is kept of a worker, over HTTP: its owner's, as long as there is the worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.applications import Starlette

from support.control_plane import ACME, GLOBEX, SCRIPT, ControlPlane
from support.worker_routes import a_record, a_version
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.control import control_routes
from tenantry_runtime.edge.control.routes import WORKERS
from tenantry_runtime.edge.worker_routes.kept_logs import logs_route
from tenantry_runtime.workers.interface import LogLine
from tenantry_runtime.workers.logs import KeptLogs, open_logs


def keep(plane: ControlPlane, logs: KeptLogs) -> None:
    """Have the control plane show and forget what is kept."""
    plane.services = replace(plane.services, logs=logs)
    routes = [logs_route(WORKERS, plane.services, logs), *control_routes(plane.services)]
    plane.app = Starlette(routes=routes)


def say(logs: KeptLogs, account: TenantId, text: str) -> None:
    lines = [LogLine(level="log", text=text, time_ms=0)]
    version = a_version(tenant=account)
    # now, so that it is not too old
    logs.keep(a_record(version=version, logs=lines, started_ms=1 << 50))


async def texts(plane: ControlPlane, path: str = "logs") -> list[str]:
    found = (await plane.ask("GET", path)).result["records"]
    return [record["logs"][0]["message"][0] for record in found]


@pytest.mark.asyncio
async def test_a_worker_that_is_deleted_leaves_no_logs_and_others_keep_theirs(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with open_logs(tmp_path / "logs") as logs:
        keep(plane, logs)
        await plane.upload()
        say(logs, ACME, "before")
        say(logs, GLOBEX, "theirs")
        assert await texts(plane) == ["before"]

        await plane.ask("DELETE", SCRIPT)
        await plane.upload()

        assert await texts(plane) == []
        assert len((await logs.read(GLOBEX, "hello")).records) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("worker", ["nope", "No", "..", "x" * 200])
async def test_of_a_worker_that_there_is_not_nothing_is_kept(
    plane: ControlPlane, tmp_path: Path, worker: str
) -> None:
    async with open_logs(tmp_path / "logs") as logs:
        keep(plane, logs)
        asked = await plane.ask("GET", SCRIPT.replace("hello", worker) + "/logs")
    assert asked.status == 404


@pytest.mark.asyncio
async def test_a_worker_that_there_is_not_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    async with open_logs(tmp_path / "logs") as logs:
        keep(plane, logs)
        asked = await plane.ask("GET", SCRIPT.replace("hello", "nope") + "/logs")
    assert asked.code == 10007
    assert "there is no worker 'nope'" in asked.message
