"""The worker of a folder beside `workerctl dev`: deployed at the start, and at every change."""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from support.fake_control_plane import TOKEN, ControlPlaneFake, Namespace, Problem
from support.http_peer import PATIENCE_S
from support.worker_folder import WorkerFolder
from tenantry.credentials import Credentials, save_credentials
from tenantry_cli.workers.live import live_worker


class Lines:
    """What is said, as it is said."""

    def __init__(self) -> None:
        self._said: queue.Queue[str] = queue.Queue()

    def __call__(self, text: str) -> None:
        self._said.put(click.unstyle(text))

    def until(self, words: str) -> str:
        """Wait for a line with words in it; what came before is left out."""
        while words not in (line := self._said.get(timeout=PATIENCE_S)):
            pass
        return line


def wait_for_uploads(plane: ControlPlaneFake, number: int) -> None:
    with plane.changed:
        assert plane.changed.wait_for(lambda: len(plane.uploads()) >= number, PATIENCE_S)


def sign_in(plane: ControlPlaneFake) -> None:
    """Leave what `dev` leaves when it has made its token."""
    credentials = Credentials(base_url=plane.base_url, account_id="acme", api_token=TOKEN)
    path = Path(os.environ["TENANTRY_CONFIG_DIR"]) / "credentials.json"
    save_credentials(credentials, path)


@pytest.fixture
def said(plane: ControlPlaneFake, folder: WorkerFolder) -> Iterator[Lines]:
    """What is said of the folder's worker while a test runs."""
    sign_in(plane)
    lines = Lines()
    with live_worker(folder.path, port=plane.port, say=lines):
        lines.until("Ready at")
        yield lines


def test_a_change_is_deployed_and_said(
    plane: ControlPlaneFake, folder: WorkerFolder, said: Lines
) -> None:
    folder.write("src/util.py", "x = 1\n")

    assert said.until("changed") == "[worker] util.py changed"
    assert f"Ready at http://hello.acme.localhost:{plane.port}/" in said.until("Ready at")
    assert [sorted(upload.files) for upload in plane.uploads()] == [
        ["entry.py"],
        ["entry.py", "util.py"],
    ]


def test_what_is_wrong_is_said_and_its_remedy_waited_for(
    plane: ControlPlaneFake, folder: WorkerFolder, said: Lines
) -> None:
    before = (folder.path / "wrangler.jsonc").read_text()

    folder.write("wrangler.jsonc", "{")
    assert said.until("changed") == "[worker] wrangler.jsonc changed"
    assert "wrangler.jsonc: line 1" in said.until("Error")

    folder.write("wrangler.jsonc", before.replace("}", ', "vars": {"A": "1"}}'))
    said.until("Ready at")
    assert plane.uploads()[-1].metadata["bindings"][0]["name"] == "A"


def test_a_worker_that_cannot_be_deployed_at_all_is_no_reason_not_to_serve_models(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(d1_databases=[{"binding": "DB"}])
    sign_in(plane)
    lines = Lines()

    with live_worker(folder.path, port=plane.port, say=lines):
        assert "D1 databases cannot be had here" in lines.until("Error")


def test_a_file_that_cannot_be_read_is_said_and_waited_for(
    plane: ControlPlaneFake, folder: WorkerFolder, said: Lines
) -> None:
    # whoever reads it gets an error, root too
    unreadable = folder.path / "src" / "util.py"
    unreadable.symlink_to("/proc/self/mem")
    assert "Input/output error" in said.until("Error")

    unreadable.unlink()
    folder.write("src/util.py", "x = 12\n")
    said.until("Ready at")
    assert plane.uploads()[-1].files["util.py"] == b"x = 12\n"


def test_a_worker_that_is_refused_is_said(
    plane: ControlPlaneFake, folder: WorkerFolder, said: Lines
) -> None:
    problem = Problem(400, 10021, "entry.py:1: SyntaxError")
    plane.refusals["POST", "/workers/scripts/hello/versions"] = problem

    folder.write("src/entry.py", "class")

    assert "entry.py:1: SyntaxError [code: 10021]" in said.until("Error")


def test_a_file_that_is_saved_without_a_change_is_not_deployed(
    plane: ControlPlaneFake, folder: WorkerFolder, said: Lines
) -> None:
    entry = folder.path / "src" / "entry.py"
    os.utime(entry, (1, 1))
    said.until("entry.py changed")

    folder.write("src/other.py", "y = 2\n")
    said.until("Ready at")

    assert len(plane.uploads()) == 2


def test_what_the_worker_does_is_shown(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    plane.records = [
        {
            "outcome": "ok",
            "eventTimestamp": 1_767_268_800_000,
            "event": {"request": {"method": "GET", "url": "http://x/"}},
            "logs": [{"level": "log", "message": ["printed"]}],
            "exceptions": [],
        }
    ]
    sign_in(plane)
    lines = Lines()

    with live_worker(folder.path, port=plane.port, say=lines):
        assert lines.until("GET http://x/ - Ok").endswith("(log) printed")


def test_it_waits_for_the_runtime(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    lines = Lines()
    with live_worker(folder.path, port=plane.port, say=lines):
        assert plane.calls == []
        sign_in(plane)
        lines.until("Ready at")


def test_secrets_and_namespaces_are_of_this_machine(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    plane.namespaces["here"] = Namespace("mine")
    folder.write(".dev.vars", "API_KEY=local\n")
    folder.configure(
        secrets={"required": ["OTHER"]},
        kv_namespaces=[{"binding": "A", "id": "here"}, {"binding": "B", "id": "elsewhere"}],
        routes=["prod.example/*"],
        triggers={"crons": ["* * * * *"]},
    )
    sign_in(plane)
    lines = Lines()

    with live_worker(folder.path, port=plane.port, say=lines):
        lines.until("Ready at")

    worker = plane.workers["hello"]
    bound = {each["name"]: each for each in plane.uploads()[0].metadata["bindings"]}
    assert worker.secrets == {"API_KEY": "local"}
    assert bound["A"]["namespace_id"] == "here"
    assert plane.namespaces[bound["B"]["namespace_id"]].title == "elsewhere"
    assert (worker.routes, worker.crons, worker.has_url) == ([], [], True)


def test_a_folder_without_a_worker_has_none(plane: ControlPlaneFake, tmp_path: Path) -> None:
    with live_worker(tmp_path, port=plane.port):
        pass

    assert plane.calls == []


def test_dev_serves_the_folders_worker_too(
    plane: ControlPlaneFake, folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(**options: Any) -> int:
        sign_in(plane)
        wait_for_uploads(plane, 1)
        return 0

    module = ModuleType("tenantry_runtime.dev")
    vars(module)["serve"] = serve
    monkeypatch.setitem(sys.modules, "tenantry_runtime.dev", module)
    monkeypatch.setattr("tenantry_cli.dev.RUNTIME_PACKAGES", ())

    assert folder.run("dev", "--port", str(plane.port)).exit_code == 0
    assert list(plane.workers) == ["hello"]
