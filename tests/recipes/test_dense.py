from __future__ import annotations

import torch

from tenantry_recipes.nano.dense import DenseAttend
from tenantry_recipes.nano.parameters import ParameterSource
from tenantry_runtime.models.attend import AttentionRows, IndexRows

NUM_ROWS = 3000


def attention_rows(seed: int) -> AttentionRows:
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    return AttentionRows(
        q_nope_TNd=noise(NUM_ROWS, 2, 4),
        q_rope_TNr=noise(NUM_ROWS, 2, 4),
        latent_TL=noise(NUM_ROWS, 8),
        k_rope_Tr=noise(NUM_ROWS, 4),
        head_maps=ParameterSource("glm", seed).heads(f"kv{seed}", 2, 4, 4, 8),
        scale=0.3,
    )


def index_rows() -> IndexRows:
    generator = torch.Generator().manual_seed(9)
    return IndexRows(
        q_TJD=torch.randn(NUM_ROWS, 2, 4, generator=generator).requires_grad_(),
        weight_TJ=torch.ones(NUM_ROWS, 2),
        key_TD=torch.randn(NUM_ROWS, 4, generator=generator),
        top_k=64,
    )


def an_attend(answering_T: torch.Tensor | None = None) -> DenseAttend:
    return DenseAttend(
        [0, NUM_ROWS],
        learn_index=True,
        is_sparse=False,
        generator=torch.Generator().manual_seed(1),
        answering_T=answering_T,
    )


def test_the_indexer_learns_at_each_of_the_few_rows_that_predict_an_answer() -> None:
    answering = torch.zeros(NUM_ROWS, dtype=torch.bool)
    answering[[2990, 2995]] = True
    attend, rows = an_attend(answering), index_rows()

    attend.select(0, rows)
    attend.attend(0, attention_rows(1), None)
    (loss,) = attend.index_losses
    (gradient,) = torch.autograd.grad(loss, rows.q_TJD)

    # 48 draws from two rows do not miss one of them
    assert gradient[answering].abs().amax((1, 2)).min() > 0


def test_a_layer_that_shares_a_choice_teaches_the_indexer_that_made_it() -> None:
    attend, rows = an_attend(), index_rows()

    attend.select(0, rows)
    attend.attend(0, attention_rows(1), None)
    attend.attend(1, attention_rows(2), None)

    own, shared = (torch.autograd.grad(loss, rows.q_TJD)[0] for loss in attend.index_losses)
    assert own.abs().max() > 0 and shared.abs().max() > 0
    assert not torch.equal(own, shared)
