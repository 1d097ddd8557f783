"""The arithmetic of weights gives the published sizes, and what a decoder really asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.released_configs import GLM_4_7_FLASH, GLM_5_1, GLM_5_2, KIMI_K2_6, KIMI_K2_INSTRUCT
from support.released_layouts import write_config
from support.stored_sizes import StoredSizes
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.models.config import ModelConfig, Shard
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.loader import load_config
from tenantry_runtime.models.released import RELEASED
from tenantry_runtime.models.sizes import WeightFormat, weight_bytes

BF16 = WeightFormat(experts="bf16")
FP8 = WeightFormat(experts="fp8", rest="fp8")
INT4 = WeightFormat(experts="int4")
INT4_AND_FP8 = WeightFormat(experts="int4", rest="fp8")
FORMATS = [BF16, FP8, INT4, INT4_AND_FP8]

GIB = 2**30
GLM_FP8_TENSOR_BYTES = 755_617_140_416


def described(config: dict[str, Any], directory: Path) -> ModelConfig:
    write_config(directory, config)
    return load_config(directory)


@pytest.mark.parametrize(("model", "config"), [("kimi-k2.6", KIMI_K2_6), ("glm-5.2", GLM_5_2)])
def test_the_released_models_are_those_of_their_configurations(
    tmp_path: Path, model: str, config: dict[str, Any]
) -> None:
    assert RELEASED[model].config == described(config, tmp_path)


@pytest.mark.parametrize(
    ("weights", "gib"),
    [
        pytest.param(FP8, 703.7, id="as released"),
        pytest.param(INT4, 419.9, id="int4 experts, bf16 rest"),
        pytest.param(INT4_AND_FP8, 404.3, id="int4 experts, fp8 rest"),
    ],
)
def test_glm_5_2_has_the_published_size(weights: WeightFormat, gib: float) -> None:
    assert round(weight_bytes(RELEASED["glm-5.2"].config, weights).total / GIB, 1) == gib


def test_glm_5_2_in_bf16_has_the_total_size_of_its_index() -> None:
    assert weight_bytes(RELEASED["glm-5.2"].config, BF16).total == 1_506_659_919_872


@pytest.mark.parametrize("bytes_per_header", [75, 400])
def test_glm_5_2_in_fp8_is_703_8_gib_with_all_its_files(bytes_per_header: int) -> None:
    tensors = weight_bytes(RELEASED["glm-5.2"].config, FP8).total
    assert tensors == GLM_FP8_TENSOR_BYTES
    # names, types and offsets of 118,629 tensors in headers and index; tokenizer.json
    files = tensors + 118_629 * bytes_per_header + 20_217_442
    assert round(files / GIB, 1) == 703.8


def test_kimi_k2_6_as_released_has_its_published_size() -> None:
    model = RELEASED["kimi-k2.6"]
    assert model.vision is not None
    text = weight_bytes(model.config, model.weights)
    assert round(text.experts / GIB, 2) == 531.56
    assert round((text.rest + model.vision.num_bytes) / GIB, 2) == 22.71
    # its files have headers too, and a shape per matrix
    assert (text.total + model.vision.num_bytes) / GIB == pytest.approx(554.30, abs=0.03)


def test_kimi_k2_in_fp8_has_its_published_scales(tmp_path: Path) -> None:
    config = described(KIMI_K2_INSTRUCT, tmp_path)
    num_values, num_scales = 1_026_408_232_448, 62_495_192
    unquantized = weight_bytes(config, FP8).total - num_values - 4 * num_scales
    # a second byte for embedding, head, routers and norms; four for each router's bias
    norms = 61 * (2 * 7168 + 1536 + 512) + 7168
    assert unquantized == 2 * 163_840 * 7168 + 60 * 384 * (7168 + 3) + norms


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("num_gpus", [1, 8])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(KIMI_K2_6, id="kimi-k2.6"),
        pytest.param(GLM_5_1, id="glm-5.1"),
        pytest.param(GLM_5_2, id="glm-5.2"),
    ],
)
def test_a_shard_takes_what_its_decoder_asks_for(
    tmp_path: Path, config: dict[str, Any], num_gpus: int, weights: WeightFormat
) -> None:
    # few layers of each kind are enough, and the MTP layer
    model = shortened(described(config, tmp_path))
    source = StoredSizes(experts=weights.experts, rest=weights.rest, shard=Shard(0, num_gpus))
    Decoder(model, source)
    found = weight_bytes(model, weights, num_gpus=num_gpus, splits_vocabulary=False)
    assert found.total == sum(source.bytes_of.values())
    experts = sum(size for name, size in source.bytes_of.items() if ".experts." in name)
    assert found.experts == experts


def test_an_mtp_layer_with_a_vocabulary_of_its_own_counts_it(tmp_path: Path) -> None:
    model = described(GLM_4_7_FLASH, tmp_path)
    assert weight_bytes(model, BF16).total == 2 * 31_221_488_576 + 47 * 64 * 2


def test_a_split_vocabulary_is_the_only_difference_it_makes() -> None:
    config = RELEASED["glm-5.2"].config
    split, whole = (
        weight_bytes(config, FP8, num_gpus=8, splits_vocabulary=splits).total
        for splits in (True, False)
    )
    assert whole - split == 2 * 2 * 154_880 * 6144 * 7 // 8


@pytest.mark.parametrize(
    ("model", "weights", "gib"),
    [
        ("kimi-k2.6", INT4, 71.8),
        ("glm-5.2", FP8, 89.5),
        ("glm-5.2", INT4, 55.2),
        ("glm-5.2", BF16, 178.1),
    ],
)
def test_one_of_eight_gpus_holds_the_published_share(
    model: str, weights: WeightFormat, gib: float
) -> None:
    released = RELEASED[model]
    vision = released.vision.num_bytes if released.vision is not None else 0
    held = weight_bytes(released.config, weights, num_gpus=8).total + vision
    assert round(held / GIB, 1) == gib


def test_gpus_that_heads_do_not_divide_over_are_refused_with_what_is_possible() -> None:
    with pytest.raises(ConfigurationError, match=r"64 attention heads .* 7 GPUs.* 1, 2, 4, 8, 16"):
        weight_bytes(RELEASED["glm-5.2"].config, FP8, num_gpus=7)


def test_int4_groups_are_not_cut_apart() -> None:
    config = RELEASED["glm-5.2"].config
    narrow = replace(config, moe=replace(config.moe, intermediate_dim=128))
    weight_bytes(narrow, INT4, num_gpus=4)
    with pytest.raises(ConfigurationError, match="16 columns"):
        weight_bytes(narrow, INT4, num_gpus=8)


def shortened(model: ModelConfig) -> ModelConfig:
    num_layers = model.is_dense_N.count(True) + 2
    indexer = model.indexer
    return replace(
        model,
        num_layers=num_layers,
        is_dense_N=model.is_dense_N[:num_layers],
        indexer=indexer and replace(indexer, is_full_N=indexer.is_full_N[:num_layers]),
    )
