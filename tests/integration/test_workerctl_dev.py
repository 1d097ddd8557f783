"""`workerctl dev` in a worker's folder, and the other commands beside it: with real isolates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.command_line import PROGRAM
from support.dev_server import LAST_LINE, environment
from support.endless_model import a_catalog_of_an_endless_model
from support.http_peer import an_unused_port
from support.supervised import Supervised, a_process
from support.worker_folder import WorkerFolder

pytestmark = pytest.mark.isolates

READY = "[worker] Ready at"

SAYS = """from workers import Response, WorkerEntrypoint
from util import word


class Default(WorkerEntrypoint):
    async def fetch(self, request):
        print("asked for", request.url)
        await self.env.CACHE.put("last", word)
        return Response(f"{word} {self.env.API_KEY}")
"""


class Beside:
    """A folder with a worker, and `workerctl dev` that runs in it."""

    def __init__(self, folder: WorkerFolder, process: Supervised, port: int) -> None:
        self.folder = folder
        self.process = process
        self.port = port

    def ask(self) -> httpx.Response:
        host = {"host": f"hello.dev.localhost:{self.port}"}
        return httpx.get(f"http://127.0.0.1:{self.port}/", headers=host, timeout=60)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    folder = WorkerFolder(tmp_path / "hello")
    folder.write("src/entry.py", SAYS)
    folder.write("src/util.py", 'word = "one"\n')
    folder.write(".dev.vars", "API_KEY=local\n")
    folder.configure(kv_namespaces=[{"binding": "CACHE", "id": "of-another-machine"}])
    port = an_unused_port()
    monkeypatch.setenv("TENANTRY_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(folder.path)
    options = ["--port", str(port), "--config", str(folder.path / "wrangler.jsonc")]
    options += ["--catalog", str(a_catalog_of_an_endless_model(tmp_path))]
    options += ["--state-dir", str(tmp_path / "state")]
    with a_process(PROGRAM, "dev", *options, env=environment(tmp_path)) as process:
        process.wait_for_line(LAST_LINE)
        if not any(READY in line for line in process.lines):
            process.wait_for_line(READY)
        yield Beside(folder, process, port)


def test_a_folders_worker_is_served_changed_shown_and_deployed(beside: Beside) -> None:
    first = beside.ask()
    beside.folder.write("src/util.py", 'word = "two"\n')
    beside.process.wait_for_line("[worker] util.py changed")
    beside.process.wait_for_line(READY)
    second = beside.ask()
    beside.folder.write("src/util.py", 'word = "three\n')
    beside.process.wait_for_line("SyntaxError")
    refused = beside.process.lines[-1]

    assert (first.text, second.text) == ("one local", "two local")
    assert "util.py" in refused
    assert beside.ask().text == "two local"

    versions = beside.folder.run_json("versions", "list")
    logged = beside.folder.run("logs", "--json").stdout.splitlines()
    cached = beside.folder.run_json("kv", "key", "get", "last", "--namespace-id", _cache(beside))
    beside.folder.run_json("rollback", versions[1]["id"], "--yes")

    assert len(versions) == 2
    assert [json.loads(line)["outcome"] for line in logged] == 3 * ["ok"]
    assert cached["value"] == "two"


def _cache(beside: Beside) -> str:
    (namespace,) = beside.folder.run_json("kv", "namespace", "list")
    found: str = namespace["id"]
    return found
