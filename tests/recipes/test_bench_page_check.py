"""The benchmark of the check measures a step that passes it."""

from __future__ import annotations

import pytest
import torch

from tenantry_recipes.bench.decode_rig import Rig
from tenantry_recipes.bench.page_check import measure, upper_bound
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_runtime.models import load_model


@pytest.mark.parametrize("cache", ["bf16", "fp8"])
def test_the_same_step_is_measured_again_and_again(cache: str) -> None:
    decoder = load_model(checkpoint_directory("kimi-k2.6-nano"), dtype=torch.bfloat16)
    rig = Rig(decoder, cache=cache, length=130, concurrency=2)
    row = measure("kimi-k2.6-nano", rig, 2, pairs=2)
    assert 0 < row.check_s < row.step_s
    assert row.share == row.check_s / row.step_s


def test_the_upper_bound_lies_above_the_median_and_below_the_most() -> None:
    values = [float(n) for n in range(101)]
    assert 50 < upper_bound(values) < 75
    assert upper_bound([1.0] * 30) == 1.0
