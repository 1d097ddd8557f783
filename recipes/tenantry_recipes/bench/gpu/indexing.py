"""Cases of the indexer that chooses keys for sparse attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tenantry_kernels.gpu.indexer import index_scores, top_positions
from tenantry_kernels.sparse_index import index_scores as reference_scores

from . import work
from .case import Case, Source, Trial, differing, relative_error
from .pages import PAGE_TOKENS, some_pages
from .shapes import Load, ModelShape

SCORES, CHOICE = "index_scores", "top_positions"
_TOLERANCE = 1e-3


def indexing_cases(model: ModelShape, load: Load) -> Iterator[Case]:
    """None for a model without an indexer."""
    if model.index_choices:
        for sequences, tokens in load.sequences:
            yield _scores_case(model, sequences, tokens)
            yield _choice_case(model, sequences, tokens)


def _scores_case(model: ModelShape, sequences: int, tokens: int) -> Case:
    heads, width = model.num_index_heads, model.index_dim

    def build(source: Source) -> Trial:
        pages = some_pages(source, width, sequences, tokens, is_fp8=True)
        query = source.normal(sequences, 1, heads, width)
        weight = source.normal(sequences, 1, heads, dtype=torch.float32)

        def run() -> torch.Tensor:
            return index_scores(query, weight, pages.pool, pages.table_SP, pages.length_S)

        def error() -> float:
            slots = pages.table_SP[..., None] * PAGE_TOKENS
            slots = slots + torch.arange(PAGE_TOKENS, device=source.device)
            key_SKD = pages.row_XC[slots.flatten(1)[:, :tokens]]
            expected = [reference_scores(query[s], weight[s], key_SKD[s]) for s in range(sequences)]
            return relative_error(run()[..., :tokens], torch.stack(expected))

        return Trial(
            run=run,
            error=error,
            tolerance=_TOLERANCE,
            work=work.index_scores(sequences * tokens, sequences, heads, width),
        )

    return Case(op=SCORES, model=model.name, shape=f"{sequences} x {tokens} tokens", build=build)


def _choice_case(model: ModelShape, sequences: int, tokens: int) -> Case:
    num_choices = model.index_choices

    def build(source: Source) -> Trial:
        padded = -(-tokens // PAGE_TOKENS) * PAGE_TOKENS
        # so few different scores that ties decide
        score = source.normal(sequences, 1, padded).float()
        length = torch.full((sequences,), tokens, device=source.device)

        def run() -> torch.Tensor:
            return top_positions(score, length, num_choices)

        def error() -> float:
            seen = score[..., :tokens]
            order = torch.sort(seen, dim=-1, descending=True, stable=True).indices
            best = order[..., :num_choices].sort(-1).values
            missing = num_choices - best.shape[-1]
            return differing(run(), torch.nn.functional.pad(best, (0, missing), value=-1))

        return Trial(
            run=run,
            error=error,
            tolerance=0.0,
            work=work.top_positions(sequences * tokens, sequences * num_choices),
        )

    shape = f"{num_choices} of {sequences} x {tokens} scores"
    return Case(op=CHOICE, model=model.name, shape=shape, build=build)
