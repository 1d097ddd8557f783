"""What a conversion of the released GLM-5.2 would write, from the list of its tensors alone."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.models.convert import Recipe
from tenantry_runtime.models.convert.inventory import list_tensors
from tenantry_runtime.models.convert.plan import Plan, make_plan
from tenantry_runtime.models.convert.recipe import Rest
from tenantry_runtime.models.convert.run import DEFAULT_SHARD_BYTES
from tenantry_runtime.models.released import RELEASED
from tenantry_runtime.models.safetensors_file import StoredTensor

CONFIG = RELEASED["glm-5.2"].config
GIB = 1 << 30

# GLM-5.2-FP8 keeps these wide; 118,629 tensors, 59,044 of them scales, follow from it
WIDE = ("embed_tokens", "lm_head", "norm", "mlp.gate.", "weights_proj", "eh_proj")


class ListedCheckpoint(Checkpoint):
    """The tensors of GLM-5.2-FP8, without their values."""

    def _locate(self) -> dict[str, StoredTensor]:
        stored: dict[str, StoredTensor] = {}

        def add(name: str, dtype: str, width: int, *shape: int) -> None:
            file = self.directory / "listed.safetensors"
            stored[name] = StoredTensor(file, dtype, shape, 0, width * prod(shape))

        for wanted in list_tensors(CONFIG):
            if wanted.name.endswith("e_score_correction_bias"):
                add(wanted.name, "F32", 4, *wanted.shape)
            elif len(wanted.shape) == 1 or any(part in wanted.name for part in WIDE):
                add(wanted.name, "BF16", 2, *wanted.shape)
            else:
                add(wanted.name, "F8_E4M3", 1, *wanted.shape)
                blocks = [-(-size // 128) for size in wanted.shape]
                add(f"{wanted.name}_scale_inv", "F32", 4, *blocks)
        return stored


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return ListedCheckpoint(tmp_path_factory.mktemp("listed"))


def planned(checkpoint: Checkpoint, rest: Rest) -> Plan:
    return make_plan(checkpoint, CONFIG, Recipe(rest=rest), shard_bytes=DEFAULT_SHARD_BYTES)


def test_the_list_is_that_of_the_release(checkpoint: Checkpoint) -> None:
    assert len(checkpoint.names) == 118_629
    assert sum(name.endswith("_scale_inv") for name in checkpoint.names) == 59_044


@pytest.mark.parametrize(("rest", "gib"), [("bf16", 419.9), ("fp8", 404.3)])
def test_a_converted_glm_5_2_has_the_published_size(
    checkpoint: Checkpoint, rest: Rest, gib: float
) -> None:
    plan = planned(checkpoint, rest)
    sizes = [sum(stored.num_bytes for stored in shard.outputs) for shard in plan.shards]
    assert sum(sizes) / GIB == pytest.approx(gib, abs=0.05)
    assert max(sizes) <= DEFAULT_SHARD_BYTES
    # 75 layers and the MTP layer, 256 experts of 3 matrices
    assert sum(step.is_expert for step in plan.steps) == 76 * 256 * 3
    assert Path(plan.shards[0].file).name == f"model-00001-of-{len(sizes):05}.safetensors"
