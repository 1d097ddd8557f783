"""How far two variants' next-token distributions lie apart, token by token of the reference's answers.

Both are given the reference's tokens, in lockstep, so that no distribution has to be kept. The same
chunks and batches as an engine's: prompts in chunks, then one row of each sequence per step; what
the prompts of a context begin with is read once, as from a prefix tree.

S sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile
from typing import NamedTuple, TypeAlias

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

Table: TypeAlias = list[int]
"""Pages of one sequence, in order."""


class Rows(NamedTuple):
    """The next tokens of one sequence."""

    table: Table
    start: int
    """Position of the first."""
    token_ids: Sequence[int]

    def positions(self) -> range:
        return range(self.start, self.start + len(self.token_ids))

    def slots(self) -> Iterator[int]:
        """Yield where they go in the pages."""
        for at in self.positions():
            yield self.table[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS


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

    table: Table
    token_ids: list[int]
    num_shared: int
    """Tokens in pages of its context."""
    longest: int
    divergence: Divergence = field(default_factory=Divergence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One variant with pages at some places, each for a longest sequence."""

    variant: Loaded
    pages: PagedCache

    @classmethod
    def of(cls, variant: Loaded, *, places: int) -> Side:
        return cls(variant=variant, pages=variant.pages(places * _PAGES_EACH))

    def log_probabilities(self, rows: Sequence[Rows], vocab_size: int) -> torch.Tensor:
        """Run sequences' next tokens; return float64 log-probabilities [S, V] after the last of each."""
        cu_len = (0, *accumulate(len(each.token_ids) for each in rows))
        checked = CheckedBatch(
            page_table_SL=torch.tensor([each.table for each in rows]),
            read_len_S=tuple(each.start + len(each.token_ids) for each in rows),
            write_slot_T=torch.tensor([slot for each in rows for slot in each.slots()]),
        )
        batch = ForwardBatch(
            token_ids_T=torch.tensor([token_id for each in rows for token_id in each.token_ids]),
            positions_T=torch.tensor([at for each in rows for at in each.positions()]),
            cu_len=cu_len,
            logit_rows_R=torch.tensor(cu_len[1:]) - 1,
        )
        decoder = self.variant.decoder
        logits_SV = decoder.logits(decoder.forward(batch, checked, self.pages))
        return logits_SV[:, :vocab_size].double().log_softmax(-1)


def pages_at(place: int) -> Table:
    """Return the pages of a place, in order."""
    return list(range(place * _PAGES_EACH, (place + 1) * _PAGES_EACH))


def diverge(
    reference: Side, candidate: Side, contexts: Sequence[Sequence[Sequence[int]]], *, streams: int
) -> list[Divergence]:
    """Answer prompts greedily by the reference; return how far the candidate is off, in order.

    `contexts` has the prompts of each context. At most `streams` are answered at a time, so the sides
    need a place for each stream and one for each context.
    """
    found: list[Divergence] = []
    rest = _shared(reference, candidate, contexts, first_place=streams)
    while group := list(islice(rest, streams)):
        answers = [
            _Answer(
                table=shared + pages_at(place)[len(shared) :],
                token_ids=list(ids),
                num_shared=len(shared) * PAGE_TOKENS,
                longest=len(ids) + MAX_ANSWER_TOKENS,
            )
            for place, (shared, ids) in enumerate(group)
        ]
        _answer(reference, candidate, answers)
        found += [answer.divergence for answer in answers]
    return found


def _shared(
    reference: Side,
    candidate: Side,
    contexts: Sequence[Sequence[Sequence[int]]],
    *,
    first_place: int,
) -> Iterator[tuple[Table, Sequence[int]]]:
    """Read what each context's prompts begin with; give each prompt and the pages that hold that."""
    for place, prompts in enumerate(contexts, first_place):
        # a prompt's last token is its own to compute
        shortest = min(len(ids) for ids in prompts) - 1
        columns = zip(*(ids[:shortest] for ids in prompts), strict=True)
        num_common = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        table = pages_at(place)
        num_pages = num_common // PAGE_TOKENS if len(prompts) > 1 else 0
        ids = prompts[0][: num_pages * PAGE_TOKENS]
        for side in (reference, candidate):
            for chunk in _chunks(table, ids, 0):
                side.log_probabilities([chunk], 1)
        yield from ((table[:num_pages], each) for each in prompts)


def _answer(reference: Side, candidate: Side, answers: Sequence[_Answer]) -> None:
    """Let answers run to their ends, all at a time."""
    text = reference.variant.text
    for answer in answers:
        *before, last = _chunks(answer.table, answer.token_ids, answer.num_shared)
        for chunk in before:
            for side in (reference, candidate):
                side.log_probabilities([chunk], 1)
        _step(reference, candidate, [last], [answer])
    running = list(answers)
    while running := [
        answer
        for answer in running
        if answer.token_ids[-1] not in text.stop_token_ids
        and len(answer.token_ids) < answer.longest
    ]:
        rows = [Rows(a.table, len(a.token_ids) - 1, a.token_ids[-1:]) for a in running]
        _step(reference, candidate, rows, running)


def _chunks(table: Table, ids: Sequence[int], start: int) -> list[Rows]:
    """Cut tokens from `start` on at multiples of a chunk, as an engine does."""
    bounds = [start, *range((start // CHUNK_TOKENS + 1) * CHUNK_TOKENS, len(ids), CHUNK_TOKENS)]
    ends = [*bounds[1:], len(ids)]
    return [
        Rows(table, low, ids[low:high])
        for low, high in zip(bounds, ends, strict=True)
        if low < high
    ]


def _step(
    reference: Side,
    candidate: Side,
    rows: Sequence[Rows],
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
