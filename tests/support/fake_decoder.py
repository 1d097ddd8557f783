"""A decoder whose logits are a hash of everything that it wrote into its pages and reads back.

Each cache word holds one token and its position. A row's logits depend on all words from 0 to the
row itself, found through the page table: a wrong page, slot, position or length changes them. It
keeps the contract of `models.Decoder` and `cache.paged.PagedCache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.batch import ForwardBatch

MAX_LOGIT = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeConfig:
    vocab_size: int = 24
    context_tokens: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCache:
    words: torch.Tensor
    """int64 [pages + 1, PAGE_TOKENS], the sink last; what was never written is poison."""

    @classmethod
    def allocate(
        cls, config: FakeConfig, *, num_pages: int, dtype: torch.dtype, device: str = "cpu"
    ) -> FakeCache:
        generator = torch.Generator().manual_seed(num_pages)
        shape = (num_pages + 1, PAGE_TOKENS)
        return cls(words=torch.randint(1 << 62, (1 << 63) - 1, shape, generator=generator))

    def as_pages(self) -> PagedCache:
        """Return the same memory as one layer of float32 rows, two to a word."""
        pages = self.words.view(torch.float32).view(-1, PAGE_TOKENS, 2)
        return PagedCache(
            num_pages=len(self.words) - 1,
            cache_format=SERVED_FORMATS["float32"],
            latent_N=(pages,),
            index_keys={},
        )

    @staticmethod
    def bytes_per_page(config: FakeConfig, dtype: torch.dtype) -> int:
        return 8 * PAGE_TOKENS


class FakeDecoder:
    """Fails the step that reads `fatal_token`; has no finite logits after `nan_token`."""

    revision = "fake"

    def __init__(
        self,
        config: FakeConfig | None = None,
        *,
        fatal_token: int | None = None,
        nan_token: int | None = None,
    ) -> None:
        self.config = config or FakeConfig()
        self._fatal_token = fatal_token
        self._nan_token = nan_token

    def forward(self, batch: ForwardBatch, checked: CheckedBatch, cache: FakeCache) -> torch.Tensor:
        if self._fatal_token is not None and (batch.token_ids_T == self._fatal_token).any():
            raise RuntimeError("the fatal token was read")
        words_T = words(batch.token_ids_T.numpy(), batch.positions_T.numpy())
        slot_T = checked.write_slot_T.clamp(max=cache.words.numel() - PAGE_TOKENS)
        cache.words.view(-1)[slot_T] = torch.from_numpy(words_T)
        checked.landing.landed(checked.write_slot_T)

        row_hashes: list[np.ndarray] = []
        length_S = checked.read_len_S
        if checked.device_len_S is not None:
            length_S = tuple(checked.device_len_S.tolist())
        for sequence, (begin, end) in enumerate(pairwise(batch.cu_len)):
            num_readable = length_S[sequence]
            table_L = checked.page_table_SL[sequence, : -(-num_readable // PAGE_TOKENS)]
            readable = cache.words[table_L].view(-1)[:num_readable].numpy()
            if not num_readable:
                row_hashes.append(np.zeros(end - begin, np.uint64))
                continue
            row_hashes.append(prefix_hashes(readable)[num_readable - (end - begin) :])
        hash_R = np.concatenate(row_hashes)[batch.logit_rows_R.numpy()]
        finite_R = batch.token_ids_T[batch.logit_rows_R] != (self._nan_token or -1)
        # a 64-bit hash in four floats of 16 bits each, which are exact
        shifts = np.arange(0, 64, 16, dtype=np.uint64)
        parts_RH = (hash_R[:, None] >> shifts & np.uint64(0xFFFF)).astype(np.float32)
        return torch.from_numpy(np.where(finite_R.numpy()[:, None], parts_RH, np.nan))

    def logits(self, hidden_RH: torch.Tensor) -> torch.Tensor:
        finite_RH = torch.nan_to_num(hidden_RH).numpy()
        parts = finite_RH.astype(np.uint64) << np.arange(0, 64, 16, dtype=np.uint64)
        hash_R = parts.sum(axis=1, dtype=np.uint64)
        rows = torch.from_numpy(np.stack([logits_of(h, self.config.vocab_size) for h in hash_R]))
        return torch.where(hidden_RH[:, :1].isnan(), torch.nan, rows)


def next_logits(token_ids: Sequence[int], vocab_size: int) -> np.ndarray:
    """Return the logits after these tokens, without pages."""
    token_T = np.asarray(token_ids, dtype=np.int64)
    return logits_of(prefix_hashes(words(token_T, np.arange(len(token_T))))[-1], vocab_size)


def words(token_T: np.ndarray, position_T: np.ndarray) -> np.ndarray:
    return token_T.astype(np.int64) << 32 | position_T.astype(np.int64)


def prefix_hashes(words_T: np.ndarray) -> np.ndarray:
    return np.cumsum(_hashed(words_T.astype(np.uint64)), dtype=np.uint64)


def logits_of(prefix_hash: np.uint64, vocab_size: int) -> np.ndarray:
    candidates_V = np.arange(1, vocab_size + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03)
    uniform_V = (_hashed(candidates_V ^ prefix_hash) >> np.uint64(40)).astype(np.float32) / 2**24
    return uniform_V * np.float32(2 * MAX_LOGIT) - np.float32(MAX_LOGIT)


def _hashed(word: np.ndarray) -> np.ndarray:
    # MurmurHash3's finalizer
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    word = (word ^ (word >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    hashed: np.ndarray = word ^ (word >> np.uint64(33))
    return hashed
