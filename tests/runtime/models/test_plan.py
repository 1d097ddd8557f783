"""What fits on a member's GPUs, and which fraction and layout give each published figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.released_configs import GLM_5_2, KIMI_K2_6
from support.released_layouts import write_config
from tenantry_runtime.cache.formats import CACHE_FORMATS
from tenantry_runtime.errors import CheckpointError, ConfigurationError
from tenantry_runtime.models.plan import (
    GPU_BYTES,
    Gpus,
    MemberPlan,
    find_model,
    plan_member,
)
from tenantry_runtime.models.released import RELEASED
from tenantry_runtime.models.sizes import WeightFormat

H200_BYTES = 143_771 * 2**20
INT4 = WeightFormat(experts="int4")
FP8 = WeightFormat(experts="fp8", rest="fp8")

EXACT = Path(__file__).resolve().parents[4] / "shared" / "reference" / "configs"

# K2.5's and K2.6's
VISION = {
    "init_pos_emb_height": 64,
    "init_pos_emb_width": 64,
    "merge_kernel_size": [2, 2],
    "patch_size": 14,
    "text_hidden_size": 7168,
    "vt_hidden_size": 1152,
    "vt_intermediate_size": 4304,
    "vt_num_hidden_layers": 27,
}


def h200s(memory_fraction: float, *, num_gpus: int = 8, activation_bytes: int = 0) -> Gpus:
    return Gpus(
        num_gpus=num_gpus,
        bytes_per_gpu=H200_BYTES,
        memory_fraction=memory_fraction,
        activation_bytes=activation_bytes,
    )


def planned(
    model: str, cache: str, gpus: Gpus, *, weights: WeightFormat = INT4, has_vision: bool = True
) -> MemberPlan:
    return plan_member(
        find_model(model),
        weights=weights,
        cache=CACHE_FORMATS[cache],
        gpus=gpus,
        has_vision=has_vision,
    )


def fraction_for(num_tokens: int, plan: MemberPlan) -> float:
    return (plan.gpu_weight_bytes + num_tokens * plan.bytes_per_token) / H200_BYTES


def test_an_h200_has_the_memory_that_the_published_figures_are_of() -> None:
    assert GPU_BYTES["h200"] == H200_BYTES


@pytest.mark.parametrize(
    ("model", "cache", "num_tokens", "fraction"),
    [
        ("kimi-k2.6", "bf16", 686_000, 0.831),
        # twice as many in the same memory: no bytes for scales
        ("kimi-k2.6", "fp8-576", 1_372_000, 0.831),
        ("glm-5.2", "fp8-656", 1_180_000, 0.816),
        ("glm-5.2", "fp8-644", 1_180_000, 0.808),
        ("glm-5.2", "fp8", 1_180_000, 0.769),
        ("glm-5.2", "fp8-576", 1_180_000, 0.767),
    ],
)
def test_a_published_figure_needs_this_fraction(
    model: str, cache: str, num_tokens: int, fraction: float
) -> None:
    assert round(fraction_for(num_tokens, planned(model, cache, h200s(0.9))), 3) == fraction


def test_1_18_million_tokens_of_glm_5_2_do_not_fit_in_bf16() -> None:
    assert fraction_for(1_180_000, planned("glm-5.2", "bf16", h200s(0.9))) > 1
    assert planned("glm-5.2", "bf16", h200s(1.0)).num_tokens < 1_180_000


@pytest.mark.parametrize(
    ("model", "cache", "fraction", "published"),
    [
        # the fraction is 0.83136 before rounding, hence 0.13 percent fewer
        ("kimi-k2.6", "bf16", 0.831, 686_000),
        ("kimi-k2.6", "fp8-576", 0.831, 1_370_000),
        ("glm-5.2", "fp8-656", 0.816, 1_180_000),
        ("glm-5.2", "fp8", 0.769, 1_180_000),
    ],
)
def test_that_fraction_gives_the_published_figure(
    model: str, cache: str, fraction: float, published: int
) -> None:
    plan = planned(model, cache, h200s(fraction))
    assert plan.num_tokens == pytest.approx(published, rel=0.0015)


def test_at_one_fraction_fp8_rows_with_scales_hold_1_36_million_tokens_of_kimi() -> None:
    assert planned("kimi-k2.6", "fp8", h200s(0.831)).num_tokens == pytest.approx(1.36e6, rel=0.001)


def test_what_weights_and_activations_leave_is_pages() -> None:
    plan = planned("glm-5.2", "fp8", h200s(0.5, activation_bytes=2**30))
    assert plan.gpu_cache_bytes == H200_BYTES // 2 - plan.gpu_weight_bytes - 2**30
    # all but the sink, and what is less than a page
    page_bytes = 64 * 48_012
    assert plan.num_pages == plan.gpu_cache_bytes // page_bytes - 1
    assert plan.num_tokens == 64 * plan.num_pages


def test_a_sequence_takes_whole_pages() -> None:
    plan = planned("glm-5.2", "fp8", h200s(0.5))
    assert plan.num_sequences(64) == plan.num_pages
    assert plan.num_sequences(65) == plan.num_pages // 2
    assert plan.num_sequences(1_048_576) == plan.num_pages // 16_384


@pytest.mark.parametrize("length_tokens", [0, 262_145])
def test_a_sequence_beyond_the_context_is_refused(length_tokens: int) -> None:
    plan = planned("kimi-k2.6", "fp8", h200s(0.831))
    with pytest.raises(ConfigurationError, match=f"1 to 262144 tokens .* not {length_tokens}"):
        plan.num_sequences(length_tokens)


def test_without_its_vision_tower_kimi_takes_less_of_every_gpu() -> None:
    vision = RELEASED["kimi-k2.6"].vision
    assert vision is not None
    whole = planned("kimi-k2.6", "fp8", h200s(0.831))
    text = planned("kimi-k2.6", "fp8", h200s(0.831), has_vision=False)
    assert whole.gpu_weight_bytes - text.gpu_weight_bytes == vision.num_bytes
    assert whole.model_weight_bytes - text.model_weight_bytes == vision.num_bytes


def test_what_does_not_fit_is_refused_with_figures() -> None:
    with pytest.raises(
        ConfigurationError, match=r"glm-5.2 does not fit: of 70.2 GiB .* take 89.5 GiB"
    ):
        planned("glm-5.2", "fp8", h200s(0.5), weights=FP8)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"memory_fraction": 0.0}, "memory_fraction"),
        ({"memory_fraction": 1.01}, "memory_fraction"),
        ({"num_gpus": 0}, "num_gpus"),
        ({"activation_bytes": -1}, "activation_bytes"),
    ],
)
def test_impossible_gpus_are_refused(wrong: dict[str, Any], named: str) -> None:
    possible: dict[str, Any] = {"num_gpus": 8, "bytes_per_gpu": 2**30, "memory_fraction": 0.5}
    with pytest.raises(ConfigurationError, match=f"{named} must be"):
        Gpus(**(possible | wrong))


def test_a_directory_is_planned_like_the_released_model(tmp_path: Path) -> None:
    write_config(tmp_path, KIMI_K2_6 | {"vision_config": VISION})
    released, found = find_model("kimi-k2.6"), find_model(str(tmp_path))
    assert (found.config, found.vision) == (released.config, released.vision)
    assert found.released_weights is None


def test_the_exact_configurations_are_planned_like_the_released_models(tmp_path: Path) -> None:
    if not EXACT.exists():
        pytest.skip("the exact configurations are not next to this repository")
    for name in RELEASED:
        write_config(tmp_path, json.loads((EXACT / f"{name}.config.json").read_text()))
        released, found = find_model(name), find_model(str(tmp_path))
        assert (found.config, found.vision) == (released.config, released.vision)


def test_a_directory_without_a_vision_tower_has_none(tmp_path: Path) -> None:
    write_config(tmp_path, KIMI_K2_6)
    assert find_model(str(tmp_path)).vision is None


def test_the_catalogs_ids_name_released_models() -> None:
    assert find_model("@cf/zai-org/glm-5.2").config == RELEASED["glm-5.2"].config


@pytest.mark.parametrize("name", ["kimi", "", "@cf/moonshotai/kimi"])
def test_an_unknown_model_is_refused_with_those_that_are_known(name: str, tmp_path: Path) -> None:
    missing = name or str(tmp_path / "missing")
    with pytest.raises(ConfigurationError, match=r"kimi-k2.6, glm-5.2"):
        find_model(missing)


def test_a_directory_that_describes_no_decoder_is_refused_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: no such file"):
        find_model(str(tmp_path))
    write_config(tmp_path, GLM_5_2 | {"model_type": "llama"})
    with pytest.raises(CheckpointError, match="'llama'"):
        find_model(str(tmp_path))
