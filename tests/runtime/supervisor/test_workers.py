"""`workerctl serve --unsafe-no-sandbox`: what it changes, and where there is nothing to change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.deployments import TWO_NODES, a_file, loaded
from tenantry_runtime.supervisor import serve
from tenantry_runtime.supervisor.parts import Modules, write_parts
from tenantry_runtime.supervisor.serve import without_sandbox
from tenantry_runtime.supervisor.state import claim


def test_it_reaches_the_edge(tmp_path: Path) -> None:
    deployment = without_sandbox(loaded(tmp_path, TWO_NODES + "[workers]\ncron = false\n"))
    with claim(tmp_path / "state") as state:
        write_parts(deployment, ["edge"], state, Modules())
        written = json.loads((state.run / "edge.json").read_text())
    assert written["workers"] == {"unsafe_no_sandbox": True, "cron": False}


def test_without_workers_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = a_file(tmp_path, TWO_NODES)
    assert serve(file, unsafe_no_sandbox=True) == 1
    assert "has no table [workers]" in capsys.readouterr().err
