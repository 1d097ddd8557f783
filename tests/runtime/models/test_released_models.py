"""Decoders of the released configurations are made of exactly the released tensors.

The counts are those of the published checkpoints: tensors and parameters of their indexes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from support.counting_source import CountingSource
from support.released_configs import (
    GLM_4_7_FLASH,
    GLM_5_1,
    GLM_5_2,
    KIMI_K2_6,
    KIMI_K2_INSTRUCT,
    KIMI_K2_THINKING,
)
from support.released_layouts import write_config
from tenantry_runtime.cache.budget import bytes_per_page
from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.models.config import ModelConfig
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.models.rope import attention_scale, inverse_frequencies

EXACT = Path(__file__).resolve().parents[4] / "shared" / "reference" / "configs"


def described(config: dict[str, Any], directory: Path) -> ModelConfig:
    write_config(directory, config)
    return load_config(directory)


def asked_for(config: dict[str, Any], directory: Path) -> CountingSource:
    source = CountingSource()
    Decoder(described(config, directory), source)
    return source


@pytest.mark.parametrize(
    ("config", "num_tensors", "num_parameters"),
    [
        pytest.param(GLM_5_1, 59_870, 753_864_139_008, id="glm-5.1"),
        pytest.param(GLM_4_7_FLASH, None, 31_221_488_576, id="glm-4.7-flash"),
        pytest.param(KIMI_K2_INSTRUCT, None, 1_026_408_232_448, id="kimi-k2"),
        pytest.param(KIMI_K2_6, None, 1_026_408_232_448, id="kimi-k2.6 text"),
    ],
)
def test_a_released_model_has_its_published_number_of_parameters(
    tmp_path: Path, config: dict[str, Any], num_tensors: int | None, num_parameters: int
) -> None:
    source = asked_for(config, tmp_path)
    assert sum(source.num_values.values()) == num_parameters
    assert num_tensors in (None, len(source.num_values))


def test_glm_5_2_has_its_published_number_of_tensors_and_bytes(tmp_path: Path) -> None:
    source = asked_for(GLM_5_2, tmp_path)
    assert len(source.num_values) == 59_585
    assert source.num_bytes == 1_506_659_919_872
    kept_in_fp8_files = ("lm_head", "weights_proj", "eh_proj")
    quantized = [name for name in source.matrices if not name.endswith(kept_in_fp8_files)]
    assert len(quantized) == 59_044


def test_kimi_k2_has_its_published_number_of_tensors(tmp_path: Path) -> None:
    source = asked_for(KIMI_K2_INSTRUCT, tmp_path)
    num_scales = sum(name != "lm_head" for name in source.matrices)
    num_stray_inverse_frequencies = 61
    assert len(source.num_values) + num_scales + num_stray_inverse_frequencies == 139_644


def test_kimi_k2_5_has_its_published_number_of_tensors(tmp_path: Path) -> None:
    source = asked_for(KIMI_K2_6, tmp_path)
    # a routed expert's matrix is three tensors; the vision tower and projector have 335 in all
    num_experts = sum(".experts." in name for name in source.matrices)
    num_vision = 27 * 12 + 3 + 2 + 6
    assert len(source.num_values) + 2 * num_experts + num_vision == 208_550


def test_glm_5_2_shares_its_indexers_as_published(tmp_path: Path) -> None:
    full = (0, 1, *range(2, 78, 4))
    assert described(GLM_5_2, tmp_path).index_layers == full
    types = ["full" if layer in full else "shared" for layer in range(78)]
    assert described(GLM_5_2 | {"indexer_types": types}, tmp_path).index_layers == full
    assert described(GLM_5_1, tmp_path).index_layers == tuple(range(78))
    assert described(GLM_4_7_FLASH, tmp_path).index_layers == ()


@pytest.mark.parametrize(
    ("config", "bytes_per_token"),
    [
        pytest.param(KIMI_K2_6, 70_272, id="kimi-k2.6"),
        # and 21 layers' index keys of 128 values in FP8, with a scale each
        pytest.param(GLM_5_2, 89_856 + 21 * 132, id="glm-5.2"),
    ],
)
def test_a_page_takes_the_published_bytes_per_token(
    tmp_path: Path, config: dict[str, Any], bytes_per_token: int
) -> None:
    num_bytes = bytes_per_page(described(config, tmp_path), CACHE_FORMATS["bf16"])
    assert num_bytes == 64 * bytes_per_token


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        pytest.param(KIMI_K2_INSTRUCT, 0.130861, id="kimi-k2"),
        pytest.param(KIMI_K2_THINKING, 0.144680, id="kimi-k2-thinking"),
        pytest.param(KIMI_K2_6, 0.144680, id="kimi-k2.6"),
        pytest.param(GLM_5_2, 0.0625, id="glm-5.2"),
        pytest.param(GLM_4_7_FLASH, 0.0625, id="glm-4.7-flash"),
    ],
)
def test_attention_scores_have_the_published_scale(
    tmp_path: Path, config: dict[str, Any], scale: float
) -> None:
    model = described(config, tmp_path)
    found = attention_scale(model.nope_dim + model.rope_dim, model.rope)
    assert found == pytest.approx(scale, abs=5e-7)


@pytest.mark.parametrize(
    ("config", "at_12", "at_19"),
    [
        pytest.param(KIMI_K2_THINKING, 1.729e-2, 1.622e-3, id="beta 1"),
        pytest.param(KIMI_K2_6, 1.162e-2, 1.584e-4, id="beta 32"),
    ],
)
def test_the_two_yarn_variants_have_their_published_frequencies(
    tmp_path: Path, config: dict[str, Any], at_12: float, at_19: float
) -> None:
    frequencies = inverse_frequencies(64, described(config, tmp_path).rope)
    assert frequencies[[12, 19]].tolist() == pytest.approx([at_12, at_19], rel=5e-4)
    plain = 50000.0 ** -(torch.arange(32) / 32)
    torch.testing.assert_close(frequencies[:9], plain[:9])
    torch.testing.assert_close(frequencies[20:], plain[20:] / 64)


@pytest.mark.parametrize(
    ("file", "config"),
    [("kimi-k2.6.config.json", KIMI_K2_6), ("glm-5.2.config.json", GLM_5_2)],
)
def test_the_exact_configurations_describe_the_same_decoder(
    tmp_path: Path, file: str, config: dict[str, Any]
) -> None:
    if not EXACT.exists():
        pytest.skip("the exact configurations are not next to this repository")
    exact = json.loads((EXACT / file).read_text())
    assert described(exact, tmp_path) == described(config, tmp_path)
