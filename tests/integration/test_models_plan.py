"""`workerctl models plan` over the runtime's arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from support.command_line import workerctl
from support.released_configs import GLM_5_2
from support.released_layouts import write_config
from tenantry_cli.models import plan
from tenantry_runtime.cache.budget import DEFAULT_MEMORY_FRACTION
from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.models.plan import GPU_BYTES

KIMI = """\
kimi-k2.6 on 8 x h200, 0.831 of their memory

weights  554.3 GiB, 71.8 GiB per GPU (experts int4, rest bf16)
cache    44.8 GiB per GPU, 70,272 bytes per token (bf16)
pages    10,705
tokens   685,120

 LENGTH  SEQUENCES
  4,096        167
 32,768         20
131,072          5
262,144          2
"""


def planned(*arguments: str) -> dict[str, Any]:
    result = workerctl("models", "plan", *arguments, "--json", env={})
    assert (result.exit_code, result.stderr) == (0, "")
    fields: dict[str, Any] = json.loads(result.stdout)
    return fields


def test_a_plan_is_a_table() -> None:
    result = workerctl("models", "plan", "kimi-k2.6", "--cache", "bf16", env={})
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == KIMI


def test_a_plan_is_json_where_asked_for() -> None:
    fields = planned("glm-5.2", "--weights", "int4", "--length", "4096", "--length", "1000")
    cache_bytes = int(143_771 * 2**20 * 0.831) - fields["gpu_weight_bytes"]
    num_pages = cache_bytes // (64 * 48_012) - 1
    assert fields == {
        "model": "glm-5.2",
        "gpu": "h200",
        "num_gpus": 8,
        "weights": {"experts": "int4", "rest": "bf16"},
        "cache": "fp8",
        "memory_fraction": 0.831,
        "model_weight_bytes": 450_903_271_424,
        "gpu_weight_bytes": fields["gpu_weight_bytes"],
        "gpu_cache_bytes": cache_bytes,
        "bytes_per_token": 48_012,
        "num_pages": num_pages,
        "num_tokens": 64 * num_pages,
        "sequences": [
            {"length_tokens": 4096, "num_sequences": num_pages // 64},
            {"length_tokens": 1000, "num_sequences": num_pages // 16},
        ],
    }


@pytest.mark.parametrize(
    ("arguments", "experts", "rest"),
    [
        (["glm-5.2"], "fp8", "fp8"),
        (["kimi-k2.6"], "int4", "bf16"),
        (["glm-5.2", "--weights", "fp8"], "fp8", "fp8"),
        (["glm-5.2", "--weights", "int4"], "int4", "bf16"),
        (["glm-5.2", "--weights", "int4", "--rest", "fp8"], "int4", "fp8"),
        (["glm-5.2", "--weights", "bf16", "--gpus", "16"], "bf16", "bf16"),
    ],
)
def test_weights_are_those_asked_for_or_those_released(
    arguments: list[str], experts: str, rest: str
) -> None:
    assert planned(*arguments)["weights"] == {"experts": experts, "rest": rest}


def test_activations_and_the_vision_tower_count_where_they_are_there() -> None:
    whole = planned("kimi-k2.6")
    assert planned("kimi-k2.6", "--activations", "2")["gpu_cache_bytes"] == (
        whole["gpu_cache_bytes"] - 2 * 2**30
    )
    assert planned("kimi-k2.6", "--text-only")["gpu_cache_bytes"] > whole["gpu_cache_bytes"]


def test_a_directory_is_planned_with_the_weights_that_one_says(tmp_path: Path) -> None:
    write_config(tmp_path, GLM_5_2)
    fields = planned(str(tmp_path), "--weights", "fp8")
    assert fields["model_weight_bytes"] == planned("glm-5.2")["model_weight_bytes"]
    result = workerctl("models", "plan", str(tmp_path), env={})
    assert result.exit_code == 2
    assert "a directory needs --weights: int4, fp8 or bf16" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kimi"], "neither a released model (kimi-k2.6, glm-5.2) nor a directory"),
        (["glm-5.2", "--gpus", "7"], "possible: 1, 2, 4, 8"),
        (["glm-5.2", "--gpu", "h100"], "does not fit"),
        (["kimi-k2.6", "--length", "300000"], "1 to 262144 tokens"),
    ],
)
def test_what_cannot_be_planned_is_one_line(arguments: list[str], said: str) -> None:
    result = workerctl("models", "plan", *arguments, env={})
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert said in line


def test_a_rest_of_its_own_goes_with_int4_experts_only() -> None:
    result = workerctl("models", "plan", "glm-5.2", "--rest", "fp8", env={})
    assert result.exit_code == 2
    assert "--rest goes with --weights int4 only" in result.stderr


def test_the_options_are_what_the_runtime_knows() -> None:
    options = {option.name: option for option in plan.params}
    for name, known in (("gpu", GPU_BYTES), ("cache", CACHE_FORMATS)):
        choice = options[name].type
        assert isinstance(choice, click.Choice)
        assert list(choice.choices) == list(known)
    assert options["memory_fraction"].default == DEFAULT_MEMORY_FRACTION
