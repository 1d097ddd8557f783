"""Which keys an indexer's compiled loops choose."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from tenantry_kernels.cpu import blocks, compiler, index_choice, kernels, ops


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def chosen_of(score: np.ndarray, num_chosen: int) -> list[int]:
    chosen = np.full(num_chosen, 99, np.int64)
    index_choice.choose_best(score.astype(np.float32), len(score), chosen)
    return [int(position) for position in chosen]


@pytest.mark.parametrize("num_scores", [1, 7, 8, 9, 300])
def test_the_highest_scores_are_chosen_whatever_their_signs(num_scores: int) -> None:
    score = np.random.default_rng(num_scores).standard_normal(num_scores)
    best = sorted(np.argsort(-score)[:8].tolist())
    assert sorted(chosen_of(score, 8)) == [-1] * (8 - len(best)) + best


def test_of_equal_scores_so_many_are_chosen_as_there_is_room_for() -> None:
    chosen = chosen_of(np.array([1.0, 0.0, -2.0, 0.0, 0.0, 3.0]), 4)
    assert chosen == [0, 5, 1, 3]


@pytest.mark.parametrize("width", [48, 64, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "num_tokens"), [(37, 90), (5, 5), (1, 60)])
def test_each_row_of_a_chunk_chooses_the_best_of_what_it_sees(
    width: int, dtype: torch.dtype, num_rows: int, num_tokens: int
) -> None:
    q, key = noise(num_rows, 6, width).to(dtype), noise(num_tokens, width, seed=1)
    weight = noise(num_rows, 6, seed=2)
    chosen = ops.chunk_choices(q, weight, key, 9)
    for t in range(num_rows):
        seen = key[: num_tokens - num_rows + t + 1].double()
        # DeepSeek-V3.2 report, equation 1
        score = weight[t].double() @ torch.relu(q[t].double() @ seen.T)
        mine = [k for k in chosen[t].tolist() if k >= 0]
        assert len(set(mine)) == len(mine) == min(9, len(seen))
        rest = torch.ones(len(seen), dtype=torch.bool)
        rest[mine] = False
        # float32 may see two the other way round that lie closer than its rounding
        assert not rest.any() or score[mine].min() > score[rest].max() - 1e-4


def test_a_row_chooses_the_same_in_any_chunk() -> None:
    q, weight, key = noise(40, 4, 48), noise(40, 4, seed=1), noise(200, 48, seed=2)
    together = ops.chunk_choices(q, weight, key, 16)
    alone = [
        ops.chunk_choices(q[t : t + 1], weight[t : t + 1], key[: 161 + t], 16) for t in range(40)
    ]
    assert torch.equal(together, torch.cat(alone))


def test_a_key_that_is_no_number_is_chosen_and_so_not_overlooked() -> None:
    q, weight, key = noise(3, 2, 32), noise(3, 2, seed=1).abs(), noise(50, 32, seed=2)
    key[7] = torch.nan
    assert (ops.chunk_choices(q, weight, key, 4) == 7).any(-1).all()


def test_compiled_code_is_of_the_files_it_is_made_of() -> None:
    # numba's cache looks at this module's own file: change the name with the others
    sources = (Path(str(module.__file__)) for module in (blocks, compiler, kernels))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    assert digest[: len(digest) // 2] == index_choice.KERNELS
