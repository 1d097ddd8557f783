"""Sequences fed to a decoder through pages, in a pool where everything unwritten is poison."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch

from tenantry_kernels.page_check import NO_SLOT
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS, CacheName
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.batch import ForwardBatch
from tenantry_runtime.models.config import ModelConfig
from tenantry_runtime.models.decoder import Decoder


def poisoned_cache(
    config: ModelConfig, *, num_pages: int, cache: CacheName = "float32"
) -> PagedCache:
    """Return a pool that turns everything into NaN that reads what was not written."""
    pages = PagedCache.allocate(config, num_pages=num_pages, cache_format=SERVED_FORMATS[cache])
    for pool in (*pages.latent_N, *pages.index_keys.values()):
        # bits that are not a number in every format, of values and of scales
        pool.view(torch.uint8).fill_(0xFF)
    return pages


@dataclass(slots=True, eq=False)
class PagedSequence:
    """One sequence's place in the pool."""

    length: int = 0
    pages: list[int] = field(default_factory=list)
    is_refused: bool = False
    """As a tracker leaves a sequence whose pages did not pass: reads nothing, writes nothing."""

    def slots(self, position_T: torch.Tensor) -> torch.Tensor:
        if self.is_refused:
            return torch.full_like(position_T, NO_SLOT)
        page = torch.tensor(self.pages)[position_T // PAGE_TOKENS]
        return page * PAGE_TOKENS + position_T % PAGE_TOKENS


class PagedRun:
    """A decoder and the sequences it has read so far, on pages handed out in no order."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        num_pages: int = 24,
        seed: int = 0,
        cache: CacheName = "float32",
    ) -> None:
        self.decoder = decoder
        self.cache = poisoned_cache(decoder.config, num_pages=num_pages, cache=cache)
        self._free = list(range(num_pages))
        random.Random(seed).shuffle(self._free)

    def step(
        self, chunks: Sequence[tuple[PagedSequence, torch.Tensor]]
    ) -> tuple[torch.Tensor, ...]:
        """Feed each sequence its new tokens in one batch; return float32 logits [T, V] of each."""
        positions = [self._reserve(sequence, ids.shape[0]) for sequence, ids in chunks]
        lengths = [ids.shape[0] for _, ids in chunks]
        batch = ForwardBatch(
            token_ids_T=torch.cat([ids for _, ids in chunks]),
            positions_T=torch.cat(positions),
            cu_len=(0, *accumulate(lengths)),
            logit_rows_R=torch.arange(sum(lengths)),
        )
        checked = CheckedBatch(
            page_table_SL=self._page_table([sequence for sequence, _ in chunks]),
            read_len_S=tuple(0 if s.is_refused else s.length for s, _ in chunks),
            write_slot_T=torch.cat(
                [
                    sequence.slots(position)
                    for (sequence, _), position in zip(chunks, positions, strict=True)
                ]
            ),
        )
        logits_TV = self.decoder.logits(self.decoder.forward(batch, checked, self.cache))
        pieces: tuple[torch.Tensor, ...] = logits_TV.split(lengths)
        return pieces

    def read(self, token_ids: torch.Tensor, chunk_lengths: Sequence[int] = ()) -> torch.Tensor:
        """Feed a new sequence by itself, in chunks of these lengths and then the rest."""
        sequence = PagedSequence()
        rest = token_ids.shape[0] - sum(chunk_lengths)
        chunks = token_ids.split([*chunk_lengths, *([rest] if rest else [])])
        return torch.cat([self.step([(sequence, chunk)])[0] for chunk in chunks])

    def _reserve(self, sequence: PagedSequence, num_tokens: int) -> torch.Tensor:
        start, sequence.length = sequence.length, sequence.length + num_tokens
        while len(sequence.pages) * PAGE_TOKENS < sequence.length:
            sequence.pages.append(self._free.pop())
        return torch.arange(start, sequence.length)

    def _page_table(self, sequences: Sequence[PagedSequence]) -> torch.Tensor:
        num_columns = max(len(sequence.pages) for sequence in sequences)
        return torch.tensor(
            [sequence.pages + [0] * (num_columns - len(sequence.pages)) for sequence in sequences]
        )
