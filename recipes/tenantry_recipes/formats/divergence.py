"""How far two variants' next-token distributions lie apart, token by token of the reference's answers.

Both are given the reference's tokens, in lockstep, so that no distribution has to be kept. The same
chunks and batches as an engine's: prompts in chunks, then one row of each sequence per step.

S sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from tenantry_recipes.nano.responder import MAX_ANSWER_TOKENS
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.batch import ForwardBatch

from .items import CONTEXT_TOKENS
from .variants import Loaded

CHUNK_TOKENS = 512
"""As an engine's default."""
_PAGES_EACH = CONTEXT_TOKENS // PAGE_TOKENS


@dataclass(slots=True, eq=False)
class Divergence:
    """Over the tokens of one answer, its end included."""

    num_tokens: int = 0
    total_nats: float = 0.0
    """Sum of KL(reference || candidate)."""
    most_nats: float = 0.0
    num_same: int = 0
    """Tokens that both would choose."""

    def add(self, nats: float, *, is_same: bool) -> None:
        self.num_tokens += 1
        self.total_nats += nats
        self.most_nats = max(self.most_nats, nats)
        self.num_same += is_same


@dataclass(slots=True, eq=False)
class _Answer:
    """One sequence: all its tokens, of which both variants have read but the last."""

    place: int
    token_ids: list[int]
    longest: int
    divergence: Divergence = field(default_factory=Divergence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One variant with pages for some sequences."""

    variant: Loaded
    pages: PagedCache

    @classmethod
    def of(cls, variant: Loaded, *, streams: int) -> Side:
        return cls(variant=variant, pages=variant.pages(streams * _PAGES_EACH))

    def log_probabilities(
        self, rows: Sequence[tuple[int, int, Sequence[int]]], vocab_size: int
    ) -> torch.Tensor:
        """Run sequences' next tokens, each as (place, position of the first, ids).

        Returns float64 log-probabilities [S, V] after the last one of each.
        """
        positions = [start + n for _, start, ids in rows for n in range(len(ids))]
        slots = [
            place * _PAGES_EACH * PAGE_TOKENS + start + n
            for place, start, ids in rows
            for n in range(len(ids))
        ]
        cu_len = (0, *accumulate(len(ids) for _, _, ids in rows))
        checked = CheckedBatch(
            page_table_SL=torch.tensor(
                [[place * _PAGES_EACH + n for n in range(_PAGES_EACH)] for place, _, _ in rows]
            ),
            read_len_S=tuple(start + len(ids) for _, start, ids in rows),
            write_slot_T=torch.tensor(slots),
        )
        batch = ForwardBatch(
            token_ids_T=torch.tensor([token_id for _, _, ids in rows for token_id in ids]),
            positions_T=torch.tensor(positions),
            cu_len=cu_len,
            logit_rows_R=torch.tensor(cu_len[1:]) - 1,
        )
        decoder = self.variant.decoder
        logits_SV = decoder.logits(decoder.forward(batch, checked, self.pages))
        return logits_SV[:, :vocab_size].double().log_softmax(-1)


def diverge(reference: Side, candidate: Side, prompts: Sequence[Sequence[int]]) -> list[Divergence]:
    """Answer prompts greedily by the reference, all at a time; return how far the candidate is off."""
    text = reference.variant.text
    answers = [
        _Answer(place, list(ids), longest=len(ids) + MAX_ANSWER_TOKENS)
        for place, ids in enumerate(prompts)
    ]
    for answer in answers:
        _read_prompt(reference, candidate, answer)
    running = answers
    while running := [
        answer
        for answer in running
        if answer.token_ids[-1] not in text.stop_token_ids
        and len(answer.token_ids) < answer.longest
    ]:
        rows = [(a.place, len(a.token_ids) - 1, a.token_ids[-1:]) for a in running]
        _step(reference, candidate, rows, running)
    return [answer.divergence for answer in answers]


def _read_prompt(reference: Side, candidate: Side, answer: _Answer) -> None:
    ids = list(answer.token_ids)
    starts = range(0, len(ids), CHUNK_TOKENS)
    for start in starts[:-1]:
        chunk = [(answer.place, start, ids[start : start + CHUNK_TOKENS])]
        for side in (reference, candidate):
            side.log_probabilities(chunk, 1)
    _step(reference, candidate, [(answer.place, starts[-1], ids[starts[-1] :])], [answer])


def _step(
    reference: Side,
    candidate: Side,
    rows: Sequence[tuple[int, int, Sequence[int]]],
    answers: Sequence[_Answer],
) -> None:
    vocab_size = reference.variant.text.vocab_size
    exact_SV = reference.log_probabilities(rows, vocab_size)
    other_SV = candidate.log_probabilities(rows, vocab_size)
    nats_S = (exact_SV.exp() * (exact_SV - other_SV)).sum(-1).clamp(min=0).tolist()
    chosen_S, others_S = exact_SV.argmax(-1).tolist(), other_SV.argmax(-1).tolist()
    for answer, nats, chosen, other in zip(answers, nats_S, chosen_S, others_S, strict=True):
        answer.divergence.add(nats, is_same=chosen == other)
        answer.token_ids.append(chosen)
