"""A node keeps each model's pages in the format that its configuration names."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from tenantry_runtime.cache.budget import num_pages
from tenantry_runtime.cache.formats import CacheName
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import ModelSource, NodeConfig

CHECKPOINTS = Path(str(files("tenantry_runtime"))) / "checkpoints"
KIMI, GLM = "kimi-k2.6-nano", "glm-5.2-nano"


def a_source(model: str, cache: CacheName | None = None) -> ModelSource:
    return ModelSource(id=model, directory=str(CHECKPOINTS / model), cache=cache)


def test_a_model_may_have_a_format_of_its_own() -> None:
    loop = build_loop(NodeConfig(models=(a_source(KIMI, "fp8"), a_source(GLM)), num_pages=2))
    told = {(member.model, member.phase): member.cache_format for member in loop.describe()}
    assert told == {
        (KIMI, "prefill"): "fp8",
        (KIMI, "decode"): "fp8",
        (GLM, "prefill"): "bf16",
        (GLM, "decode"): "bf16",
    }


@pytest.mark.parametrize(
    ("model", "cache", "token_bytes"),
    [
        # six layers of 96 values; four layers of 48 values of index keys in FP8
        (KIMI, "bf16", 6 * 96 * 2),
        (KIMI, "fp8", 6 * 100),
        (GLM, "bf16", 6 * 96 * 2 + 4 * 52),
        (GLM, "fp8", 6 * 100 + 4 * 52),
    ],
)
def test_a_budget_of_bytes_holds_the_pages_of_its_format(
    model: str, cache: CacheName, token_bytes: int
) -> None:
    budget = 1 << 20
    config = NodeConfig(models=(a_source(model),), cache=cache, cache_bytes=budget)
    (pages,) = {member.num_pages for member in build_loop(config).describe()}
    assert pages == num_pages(budget, 64 * token_bytes) == budget // (64 * token_bytes) - 1


@pytest.mark.parametrize("name", ["bfloat16", "fp8-656", "int4"])
def test_a_format_that_is_not_served_is_refused_by_name(name: str) -> None:
    models = f'{{"models": [{{"id": "m", "directory": "x", "cache": "{name}"}}]}}'
    node = f'{{"models": [{{"id": "m", "directory": "x"}}], "cache": "{name}"}}'
    for config in (models, node):
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.json.decode(config, type=NodeConfig)
