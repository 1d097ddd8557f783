"""Eight shards' partial outputs sum to what one process computes, sublayer by sublayer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch
from torch.nn.functional import embedding

from support.paged_batch import PagedRun, poisoned_cache
from support.quantized_copies import Copy, fp8_copy, int4_copy
from support.tiny_checkpoints import BUILDERS, TinyCheckpoint, prompt
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.models.attend import PagedAttend, Selection
from tenantry_runtime.models.config import ModelConfig, Shard
from tenantry_runtime.models.layers import Mlp, Moe
from tenantry_runtime.models.loader import Weights, load_model

Checkpoints = Callable[[str], TinyCheckpoint]

NUM_SHARDS = 8
NUM_TOKENS = 70
FILES: list[tuple[str, Copy | None]] = [
    *[(name, None) for name in BUILDERS],
    ("kimi_k2", int4_copy(torch.int32)),
    ("glm5_wide", fp8_copy),
]
EVERY_FORMAT = pytest.mark.parametrize(
    ("name", "copy"), FILES, ids=[*BUILDERS, "kimi_k2-int4", "glm5_wide-fp8"]
)


def directory_of(checkpoints: Checkpoints, name: str, copy: Copy | None, destination: Path) -> Path:
    if copy is None:
        return checkpoints(name).directory
    copy(checkpoints(name).directory, destination)
    return destination


def pages_of_one_prompt(config: ModelConfig) -> PagedAttend:
    checked = CheckedBatch(
        page_table_SL=torch.tensor([[1, 0]]),
        read_len_S=(NUM_TOKENS,),
        write_slot_T=torch.cat((torch.arange(64, 128), torch.arange(6))),
    )
    cache = poisoned_cache(config, num_pages=2)
    return PagedAttend(checked, (0, NUM_TOKENS), cache, deterministic=False)


def assert_sums_to(partials: list[torch.Tensor], whole: torch.Tensor) -> None:
    torch.testing.assert_close(torch.stack(partials).sum(0), whole, rtol=0, atol=2e-5)
    # a shard that held everything, or nothing, would be a mistake too
    assert all(0 < partial.norm() < whole.norm() for partial in partials)


@pytest.mark.parametrize("weights", ["dense", "stored"])
@EVERY_FORMAT
def test_each_sublayers_parts_sum_to_the_whole(
    checkpoints: Checkpoints, tmp_path: Path, name: str, copy: Copy | None, weights: Weights
) -> None:
    directory = directory_of(checkpoints, name, copy, tmp_path / "copy")
    whole = load_model(directory, weights="dense")
    shards = [
        load_model(directory, weights=weights, shard=Shard(rank, NUM_SHARDS))
        for rank in range(NUM_SHARDS)
    ]
    caches = [pages_of_one_prompt(whole.config) for _ in shards]
    own_cache = pages_of_one_prompt(whole.config)
    x_TH = embedding(prompt(NUM_TOKENS, 1), whole.embedding_VH)
    rotation = whole.rotation(torch.arange(NUM_TOKENS))
    selection: Selection | None = None
    for n, layer in enumerate(whole.layers):
        normed = layer.input_norm(x_TH)
        partials = [
            shard.layers[n].attention(n, normed, rotation, cache, selection)[0]
            for shard, cache in zip(shards, caches, strict=True)
        ]
        attended, selection = layer.attention(n, normed, rotation, own_cache, selection)
        assert_sums_to(partials, attended)
        x_TH = x_TH + attended
        normed = layer.mlp_norm(x_TH)
        mixed = layer.mlp(normed)
        assert_sums_to([shard.layers[n].mlp(normed) for shard in shards], mixed)
        x_TH = x_TH + mixed


@pytest.mark.parametrize("name", ["kimi_k2", "glm52"])
def test_a_moe_layers_experts_and_shared_expert_are_both_split(
    checkpoints: Checkpoints, name: str
) -> None:
    directory = checkpoints(name).directory
    whole = load_model(directory)
    x_TH = embedding(prompt(9, 1), whole.embedding_VH)
    moe = whole.layers[-1].mlp
    parts = [
        load_model(directory, shard=Shard(rank, NUM_SHARDS)).layers[-1].mlp for rank in range(8)
    ]
    assert isinstance(moe, Moe)
    expert_TK, weight_TK = moe.router(x_TH)
    routed = [part.experts(x_TH, expert_TK, weight_TK) for part in parts if isinstance(part, Moe)]
    assert_sums_to(routed, moe.experts(x_TH, expert_TK, weight_TK))
    shared: list[Mlp] = [part.shared for part in parts if isinstance(part, Moe)]
    assert_sums_to([mlp(x_TH) for mlp in shared], moe.shared(x_TH))


def test_a_shard_keeps_the_memory_of_its_own_heads_only(checkpoints: Checkpoints) -> None:
    directory = checkpoints("glm5").directory

    def kept_bytes(shard: Shard) -> int:
        maps = load_model(directory, shard=shard).layers[0].attention.head_maps
        return maps.key_NdL.untyped_storage().nbytes()

    assert kept_bytes(Shard(3, NUM_SHARDS)) * NUM_SHARDS == kept_bytes(Shard())


class Meeting:
    """Adds up what eight threads bring, as an all-reduce does."""

    def __init__(self) -> None:
        self._barrier = Barrier(NUM_SHARDS, timeout=60)
        self._brought: dict[int, torch.Tensor] = {}

    def reduce_of(self, rank: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def reduce(partial: torch.Tensor) -> torch.Tensor:
            self._brought[rank] = partial
            self._barrier.wait()
            total = torch.stack([self._brought[n] for n in range(NUM_SHARDS)]).sum(0)
            self._barrier.wait()
            return total

        return reduce


@pytest.mark.parametrize("name", ["kimi_k25", "glm52"])
def test_eight_decoders_that_reduce_have_transformers_logits(
    checkpoints: Checkpoints, name: str
) -> None:
    tiny, meeting = checkpoints(name), Meeting()

    def logits_of(rank: int) -> torch.Tensor:
        shard = Shard(rank, NUM_SHARDS)
        decoder = load_model(tiny.directory, shard=shard, reduce=meeting.reduce_of(rank))
        return PagedRun(decoder).read(tiny.answers[1].token_ids, [33])

    with ThreadPoolExecutor(NUM_SHARDS) as threads:
        everywhere = list(threads.map(logits_of, range(NUM_SHARDS)))
    for logits in everywhere:
        torch.testing.assert_close(logits, tiny.answers[1].logits, rtol=0, atol=2e-5)


def test_heads_that_do_not_divide_are_refused(tiny: TinyCheckpoint) -> None:
    with pytest.raises(ValueError, match="8 attention heads cannot be split over 3 shards"):
        load_model(tiny.directory, shard=Shard(0, 3))


def test_more_shards_than_heads_are_refused(tiny: TinyCheckpoint) -> None:
    with pytest.raises(ValueError, match="8 attention heads cannot be split over 16 shards"):
        load_model(tiny.directory, shard=Shard(0, 16))


@pytest.mark.parametrize(("rank", "size"), [(8, 8), (-1, 8), (0, 0), (1, 1)])
def test_a_rank_outside_its_group_is_refused(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"rank {rank} "):
        Shard(rank, size)
