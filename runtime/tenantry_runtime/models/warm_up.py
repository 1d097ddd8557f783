"""The first passes of a decoder, which compile or load what its ops are made of."""

from __future__ import annotations

import torch

from tenantry_kernels.page_check import NO_SLOT
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS

from .batch import ForwardBatch
from .decoder import Decoder


def warm_up(decoder: Decoder, cache: PagedCache) -> None:
    """Run what a decode step and prefill chunks run, before any page is in use; write to no page.

    A chunk that sees itself alone and one that sees much more attend in different ways, and the
    latter, like the decode step, reads enough for sparse attention to choose. The first page stands
    in for all that they read.
    """
    indexer = decoder.config.indexer
    longest = max(PAGE_TOKENS, 1 + (indexer.top_k if indexer else 0))
    for lengths, read_len in (((1, 1), longest), ((2,), longest), ((2,), 2)):
        decoder.logits(
            decoder.forward(_batch(lengths, cache), _pages(lengths, read_len, cache), cache)
        )


def _batch(lengths: tuple[int, ...], cache: PagedCache) -> ForwardBatch:
    device = cache.latent_N[0].device
    return ForwardBatch(
        token_ids_T=torch.zeros(sum(lengths), dtype=torch.int64, device=device),
        positions_T=torch.zeros(sum(lengths), dtype=torch.int64, device=device),
        cu_len=tuple(sum(lengths[:n]) for n in range(len(lengths) + 1)),
        logit_rows_R=torch.arange(len(lengths), device=device),
    )


def _pages(lengths: tuple[int, ...], read_len: int, cache: PagedCache) -> CheckedBatch:
    device = cache.latent_N[0].device
    num_columns = -(-read_len // PAGE_TOKENS)
    return CheckedBatch(
        page_table_SL=torch.zeros(len(lengths), num_columns, dtype=torch.int64, device=device),
        read_len_S=(read_len,) * len(lengths),
        write_slot_T=torch.full((sum(lengths),), NO_SLOT, device=device),
    )
