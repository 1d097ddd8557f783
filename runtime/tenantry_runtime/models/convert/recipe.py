"""What a conversion makes of a checkpoint, and how config.json says so.

| tensors | `rest="bf16"` | `rest="fp8"` |
|---|---|---|
| routed experts, those of MTP layers too | INT4 group 32 | = |
| other matrices that the source has in FP8 blocks | BF16 | as they are |
| all else | as it is | = |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from tenantry_runtime.models.quantize import FP8_BLOCK, INT4_GROUP

Rest: TypeAlias = Literal["bf16", "fp8"]

_IGNORED = (
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    # what the released Kimi files leave to the reader, whose router and vision are no Linear
    r"re:.*mlp\.gate$",
    "re:.*eh_proj.*",
    "re:.*shared_head.*",
    "re:.*vision_tower.*",
    "re:.*mm_projector.*",
)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How tensors are stored. Two conversions of one source by equal recipes are equal."""

    experts: Literal["int4"] = "int4"
    group_size: int = INT4_GROUP
    scales: Literal["least-squares-1"] = "least-squares-1"
    """The fit in `models/quantize.py`; counts up when the fit changes."""
    rest: Rest = "bf16"


def converted_config(config: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """Return config.json's values with the quantization that `recipe` leaves behind."""
    kept = {key: value for key, value in config.items() if key != "quantization_config"}
    text = kept.get("text_config")
    if isinstance(text, dict):
        # where the released multimodal files have it
        return {**kept, "text_config": {**text, "quantization_config": _quantization(recipe)}}
    return {**kept, "quantization_config": _quantization(recipe)}


def _quantization(recipe: Recipe) -> dict[str, Any]:
    groups = {"group_0": _group("Linear", _INT4_WEIGHTS)}
    if recipe.rest == "bf16":
        return {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "kv_cache_scheme": None,
            "ignore": list(_IGNORED),
            "config_groups": groups,
        }
    return {
        # no other loader reads FP8 blocks beside packed INT4. transformers refuses a quantization
        # without a method; one that it does not know it would skip, and load noise
        "quant_method": None,
        "format": "pack-quantized experts, fp8 blocks",
        "config_groups": groups,
        "rest": {
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [FP8_BLOCK, FP8_BLOCK],
        },
    }


def _group(target: str, weights: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "targets": [target],
        "input_activations": None,
        "output_activations": None,
        "weights": dict(weights),
    }


_INT4_WEIGHTS: Mapping[str, Any] = {
    "num_bits": 4,
    "type": "int",
    "symmetric": True,
    "strategy": "group",
    "group_size": INT4_GROUP,
    "dynamic": False,
    "observer": "minmax",
    "observer_kwargs": {},
    "actorder": None,
    "block_structure": None,
}
