"""A sequence whose pages did not pass the check reads and writes nothing, and troubles nobody."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from support.paged_batch import PagedRun, PagedSequence
from support.poisoned_layer import PoisonedLayer
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_kernels.page_check import NO_SLOT
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.attend import PagedAttend
from tenantry_runtime.models.loader import load_model

MODES = pytest.mark.parametrize("deterministic", [False, True], ids=["fast", "deterministic"])


@MODES
@pytest.mark.parametrize("num_refused_rows", [1, 20], ids=["decode", "prefill"])
def test_a_refused_sequence_leaves_its_neighbors_logits_alone(
    tiny: TinyCheckpoint, deterministic: bool, num_refused_rows: int
) -> None:
    run = PagedRun(load_model(tiny.directory, deterministic=deterministic))
    answer = tiny.answers[1]
    reader, refused = PagedSequence(), PagedSequence(is_refused=True)
    refused_ids = tiny.answers[0].token_ids[:num_refused_rows]
    pieces = []
    for ids in answer.token_ids.split([70, 1, 26]):
        logits, refused_logits = run.step([(reader, ids), (refused, refused_ids)])
        assert refused_logits.isfinite().all()
        pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces), answer.logits, rtol=0, atol=2e-5)


def test_a_step_writes_its_own_slots_and_the_sink_only(tiny: TinyCheckpoint) -> None:
    run = PagedRun(load_model(tiny.directory), num_pages=4)
    reader, refused = PagedSequence(), PagedSequence(is_refused=True)
    token_ids = tiny.answers[0].token_ids[:70]
    run.step([(reader, token_ids), (refused, token_ids[:3])])
    own = reader.slots(torch.arange(70)).tolist()
    for pool in (*run.cache.latent_N, *run.cache.index_keys.values()):
        rows = pool.flatten(0, 1)
        written = rows.isfinite().all(-1).nonzero().flatten().tolist()
        assert sorted(own) == [slot for slot in written if slot < 4 * PAGE_TOKENS]
        assert rows[own].isfinite().all()


@MODES
@pytest.mark.parametrize("is_inference", [True, False], ids=["compiled", "torch"])
@pytest.mark.parametrize("num_rows", [1, 3], ids=["decode", "prefill"])
@pytest.mark.parametrize("top_k", [None, 2, 500], ids=["dense", "sparse", "all"])
@pytest.mark.parametrize("cache", ["float32", "fp8"])
def test_attention_over_nothing_is_exactly_zero(
    deterministic: bool,
    num_rows: int,
    top_k: int | None,
    is_inference: bool,
    cache: Literal["float32", "fp8"],
) -> None:
    layer = PoisonedLayer(cache)
    # the first sequence reads two tokens of its page; the second reads nothing, though it names one
    layer.write_ones(2)
    checked = CheckedBatch(
        page_table_SL=torch.tensor([[0, 0], [1, 0]]),
        read_len_S=(3, 0),
        write_slot_T=torch.tensor([2] + [NO_SLOT] * num_rows),
    )
    with torch.inference_mode(is_inference):
        attend = PagedAttend(
            checked, (0, 1, 1 + num_rows), layer.cache, deterministic=deterministic
        )
        selection = None
        if top_k is not None:
            selection = attend.select(0, layer.index_rows(1 + num_rows, top_k))
        values_TNV = attend.attend(0, layer.attention_rows(1 + num_rows), selection)
    assert values_TNV[0].isfinite().all() and values_TNV[0].any()
    assert torch.equal(values_TNV[1:], torch.zeros_like(values_TNV[1:]))


@pytest.mark.parametrize("is_inference", [True, False], ids=["compiled", "torch"])
def test_attention_to_a_row_that_is_not_a_number_is_not_a_number(is_inference: bool) -> None:
    layer = PoisonedLayer("float32")
    checked = CheckedBatch(
        page_table_SL=torch.tensor([[0]]), read_len_S=(3,), write_slot_T=torch.tensor([2])
    )
    with torch.inference_mode(is_inference):
        attend = PagedAttend(checked, (0, 1), layer.cache, deterministic=False)
        # slots 0 and 1 are the sequence's own and hold NaN: a fault to show, not to smooth over
        assert attend.attend(0, layer.attention_rows(1), None).isnan().all()
