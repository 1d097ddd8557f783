"""`workerctl drill integrity`: every fault is put into the nano models, and none gets through."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from support.command_line import workerctl
from support.engine import a_submit, run_to_end
from tenantry_runtime.cache.faults import FaultKind
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig

KIMI = Path(str(files("tenantry_runtime"))) / "checkpoints" / "kimi-k2.6-nano"
GLM = KIMI.with_name("glm-5.2-nano")


def a_config(folder: Path, **engine: object) -> Path:
    path = folder / "node.json"
    path.write_text(json.dumps({"address": "unix:/nowhere", "engine": engine}))
    return path


@pytest.mark.parametrize(("directory", "cache"), [(KIMI, "bf16"), (GLM, "bf16"), (GLM, "fp8")])
def test_no_fault_gets_through(tmp_path: Path, directory: Path, cache: str) -> None:
    config = a_config(
        tmp_path, models=[{"id": "m", "directory": str(directory)}], cache=cache, drills=True
    )
    result = workerctl(
        *("drill", "integrity", "--config", str(config), "--rounds", "1", "--json"), env={}
    )
    assert (result.exit_code, result.stderr) == (0, "")
    outcome = json.loads(result.stdout)
    assert outcome["passed"] is True
    assert [row["kind"] for row in outcome["rows"]] == list(FaultKind)
    for row in outcome["rows"]:
        assert row["num_injected"] == row["num_caught"] > 0
        assert row["num_wrong_tokens"] == row["num_false_alarms"] == row["num_findings"] == 0


@pytest.mark.parametrize("directory", [KIMI, GLM])
@pytest.mark.parametrize("deterministic", [True, False])
def test_greedy_answers_are_the_same_with_the_check_and_without(
    directory: Path, deterministic: bool
) -> None:
    told = []
    for check_pages in (True, False):
        source = ModelSource(id="m", directory=str(directory))
        loop = build_loop(
            NodeConfig(
                models=(source,),
                num_pages=40,
                deterministic=deterministic,
                check_pages=check_pages,
            )
        )
        for n in range(4):
            prompt = [(7 * n + 5 * k) % 300 for k in range(50 + 60 * n)]
            loop.submit(a_submit(f"{n}", model="m", prompt=prompt, max_tokens=30))
        told.append(run_to_end(loop).tokens)
        loop.close()
    assert told[0] == told[1]
    assert len(told[0]) == 4


def test_a_configuration_that_does_not_allow_drills_is_left_alone(tmp_path: Path) -> None:
    config = a_config(tmp_path, models=[{"id": "m", "directory": str(KIMI)}])
    result = workerctl("drill", "integrity", "--config", str(config), env={})
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: this configuration does not allow drills; set its `drills` to true to allow them\n"
    )


def test_a_file_that_is_no_configuration_is_an_error(tmp_path: Path) -> None:
    config = a_config(tmp_path, models=[])
    result = workerctl("drill", "integrity", "--config", str(config), env={})
    assert result.exit_code == 1
    assert "models must name one or more" in result.stderr
