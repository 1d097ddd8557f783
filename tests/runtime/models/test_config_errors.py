"""An unusable config.json is an error that names the file and the key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.released_layouts import read_config, write_config
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.errors import CheckpointError
from tenantry_runtime.models.loader import load_config

Checkpoints = Callable[[str], TinyCheckpoint]


@pytest.mark.parametrize("content", ["", "null", "[1]", '{"model_type": ', "{} {}"])
def test_an_unusable_configuration_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CheckpointError) as caught:
        load_config(tmp_path)
    assert caught.value.file == str(tmp_path / "config.json")


@pytest.mark.parametrize("model_type", ["llama", "deepseek_v32", "", None, ["kimi_k2"]])
def test_an_unknown_model_type_is_named_with_the_known_ones(
    tmp_path: Path, model_type: object
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(CheckpointError, match=r"none of .*kimi_k25.*glm_moe_dsa") as caught:
        load_config(tmp_path)
    assert repr(model_type) in caught.value.problem


KEYS = [
    *[
        (name, key)
        for name in ("kimi_k2", "glm5", "glm47_flash")
        for key in ("vocab_size", "v_head_dim")
    ],
    ("kimi_k2", "first_k_dense_replace"),
    ("kimi_k2", "routed_scaling_factor"),
    ("glm5", "index_topk"),
    ("glm5", "rms_norm_eps"),
]


@pytest.mark.parametrize(("name", "key"), KEYS)
@pytest.mark.parametrize("value", [None, "8", True, [8]])
def test_a_missing_or_mistyped_key_is_named(
    checkpoints: Checkpoints, tmp_path: Path, name: str, key: str, value: object
) -> None:
    write_config(tmp_path, read_config(checkpoints(name).directory) | {key: value})
    with pytest.raises(CheckpointError, match=f"{key} is ") as caught:
        load_config(tmp_path)
    assert caught.value.file == str(tmp_path / "config.json")


@pytest.mark.parametrize("value", [-1, 8.5])
def test_a_count_that_is_no_count_is_named(
    checkpoints: Checkpoints, tmp_path: Path, value: float
) -> None:
    write_config(tmp_path, read_config(checkpoints("kimi_k2").directory) | {"v_head_dim": value})
    with pytest.raises(CheckpointError, match=f"v_head_dim is {value}"):
        load_config(tmp_path)


NOT_IMPLEMENTED = [
    ("kimi_k2", {"scoring_func": "softmax"}, "scoring_func"),
    ("kimi_k2", {"topk_method": "greedy"}, "topk_method"),
    ("kimi_k2", {"moe_layer_freq": 2}, "moe_layer_freq"),
    ("kimi_k2", {"hidden_act": "gelu"}, "hidden_act"),
    ("kimi_k2", {"attention_bias": True}, "attention_bias"),
    ("kimi_k2", {"num_experts_per_tok": 9}, "num_experts_per_tok"),
    ("kimi_k2", {"num_experts_per_tok": 0}, "num_experts_per_tok"),
    ("kimi_grouped", {"n_group": 3}, "n_group"),
    ("kimi_grouped", {"n_group": 8}, "n_group"),
    ("kimi_k2", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rope_type"),
    ("glm5", {"rope_interleave": False}, "rope_interleave"),
    ("glm5", {"indexer_rope_interleave": False}, "indexer_rope_interleave"),
    ("glm5", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rope_type"),
    ("glm5", {"indexer_types": ["shared"] * 8}, "indexer_types"),
    ("glm5", {"indexer_types": ["full"] * 7}, "indexer_types"),
    ("glm5", {"indexer_types": ["full"] * 7 + ["half"]}, "indexer_types"),
    ("glm5", {"mlp_layer_types": ["sparse"] * 7}, "mlp_layer_types"),
]


@pytest.mark.parametrize(("name", "change", "key"), NOT_IMPLEMENTED)
def test_a_model_that_these_layers_do_not_compute_is_refused(
    checkpoints: Checkpoints, tmp_path: Path, name: str, change: dict[str, Any], key: str
) -> None:
    write_config(tmp_path, read_config(checkpoints(name).directory) | change)
    with pytest.raises(CheckpointError, match=key):
        load_config(tmp_path)


def test_a_key_inside_another_is_named_in_full(checkpoints: Checkpoints, tmp_path: Path) -> None:
    config = read_config(checkpoints("kimi_k25").directory)
    del config["text_config"]["rope_parameters"]["factor"]
    config["text_config"]["rope_parameters"]["rope_type"] = "default"
    config["text_config"]["rope_parameters"]["rope_theta"] = "big"
    write_config(tmp_path, config)
    with pytest.raises(CheckpointError) as caught:
        load_config(tmp_path)
    assert caught.value.problem == "text_config.rope_parameters.rope_theta is 'big', not a number"
