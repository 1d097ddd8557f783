"""What attention and indexers of a nano model see of real prompts, layer by layer.

T rows, the last ones of a prompt; K keys, all of it; N heads, C cached values, V values per head.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch

from tenantry_recipes.nano.splits import Split
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.task import PERSONAS, Draw
from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.formats import SERVED_FORMATS
from tenantry_runtime.cache.paged import PagedCache
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.attend import (
    AttentionRows,
    ChosenPositions,
    IndexRows,
    PagedAttend,
    Selection,
)
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.text import TextModel

NUM_QUERIES = 128
"""Rows at the end of a prompt whose attention is compared; they see the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLayer:
    """One layer's attention over one prompt, in float64."""

    q_TNC: torch.Tensor
    """Absorbed."""
    row_KC: torch.Tensor
    value_NVL: torch.Tensor
    """Out of the latent space."""
    scale: float
    is_seen_TK: torch.Tensor

    def values(self, row_KC: torch.Tensor) -> torch.Tensor:
        """Return what attention puts out [T, N, V] if these rows are its keys and values."""
        latent_dim = self.value_NVL.shape[-1]
        score_NTK = (self.q_TNC.transpose(0, 1) @ row_KC.T) * self.scale
        weight_NTK = score_NTK.masked_fill(~self.is_seen_TK, -torch.inf).softmax(-1)
        sum_NTL = weight_NTK @ row_KC[:, :latent_dim]
        return (sum_NTL @ self.value_NVL.mT).transpose(0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenIndex:
    """One indexer's rows of one prompt, in float64."""

    q_TJD: torch.Tensor
    weight_TJ: torch.Tensor
    key_KD: torch.Tensor
    is_past_TK: torch.Tensor
    top_k: int

    def chosen(self, key_KD: torch.Tensor) -> torch.Tensor:
        """Return which keys each row sees, bool [T, K]."""
        match_TJK = torch.relu(self.q_TJD @ key_KD.T)
        score_TK = (self.weight_TJ[..., None] * match_TJK).sum(1)
        score_TK = score_TK.masked_fill(~self.is_past_TK, -torch.inf)
        best = score_TK.topk(self.top_k, -1).indices
        return torch.zeros_like(self.is_past_TK).scatter_(1, best, True) & self.is_past_TK


class Recorder:
    """An `Attend` that keeps what it is given and passes it on."""

    def __init__(self, attend: PagedAttend, *, num_keys: int) -> None:
        self.layers: list[SeenLayer] = []
        self.indexers: list[SeenIndex] = []
        self._attend = attend
        position = torch.arange(num_keys)
        self._is_past_TK = position <= position[-NUM_QUERIES:, None]

    def select(self, layer: int, rows: IndexRows) -> Selection | None:
        self.indexers.append(
            SeenIndex(
                q_TJD=rows.q_TJD[-NUM_QUERIES:].double(),
                weight_TJ=rows.weight_TJ[-NUM_QUERIES:].double(),
                key_KD=rows.key_TD.double(),
                is_past_TK=self._is_past_TK,
                top_k=rows.top_k,
            )
        )
        return self._attend.select(layer, rows)

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        q_nope, q_rope = rows.q_nope_TNd[-NUM_QUERIES:], rows.q_rope_TNr[-NUM_QUERIES:]
        self.layers.append(
            SeenLayer(
                q_TNC=torch.cat((rows.head_maps.absorb(q_nope), q_rope), -1).double(),
                row_KC=torch.cat((rows.latent_TL, rows.k_rope_Tr), -1).double(),
                value_NVL=rows.head_maps.value_NVL.double(),
                scale=rows.scale,
                is_seen_TK=self._is_seen(selection),
            )
        )
        return self._attend.attend(layer, rows, selection)

    def _is_seen(self, selection: Selection | None) -> torch.Tensor:
        if not isinstance(selection, ChosenPositions):
            return self._is_past_TK
        num_keys = self._is_past_TK.shape[1]
        position_TK = selection.position_TK[-NUM_QUERIES:]
        # one spare column takes the -1s
        seen = torch.zeros(len(position_TK), num_keys + 1, dtype=torch.bool)
        seen.scatter_(1, position_TK.masked_fill(position_TK < 0, num_keys), True)
        return seen[:, :num_keys] & self._is_past_TK


@torch.inference_mode()
def record(decoder: Decoder, token_ids: list[int]) -> Recorder:
    """Run a prompt through a decoder with an exact cache."""
    num_keys = len(token_ids)
    num_pages = -(-num_keys // PAGE_TOKENS)
    cache = PagedCache.allocate(
        decoder.config, num_pages=num_pages, cache_format=SERVED_FORMATS["float32"]
    )
    checked = CheckedBatch(
        page_table_SL=torch.arange(num_pages)[None],
        read_len_S=(num_keys,),
        write_slot_T=torch.arange(num_keys),
    )
    recorder = Recorder(
        PagedAttend(checked, (0, num_keys), cache, deterministic=False), num_keys=num_keys
    )
    decoder.trunk(torch.tensor(token_ids), torch.arange(num_keys), recorder)
    return recorder


def prompts(text: TextModel, *, least_tokens: int, seed: int = 0) -> Iterator[list[int]]:
    """Make prompts of held-out look-ups in long texts, without end."""
    for number in count():
        example = TASKS["retrieval"].generate(
            Draw(
                rng=random.Random(f"cache error {seed} {number}"),
                max_tokens=2 * least_tokens,
                split=Split.TEST,
                persona=PERSONAS[text.family],
                length=text.length,
            )
        )
        messages = example.messages[: max(example.targets)]
        ids = text.encode(text.render(messages, example.tools, example.options))
        if len(ids) >= least_tokens:
            yield ids
