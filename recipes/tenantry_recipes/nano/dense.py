"""Attention for training: over whole documents, without pages.

T rows of consecutive documents; n rows of one of them. N heads, d query values per head.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from tenantry_kernels.sparse_index import index_scores
from tenantry_runtime.models.attend import AttentionRows, IndexRows, Selection

from .attention import causal_attention
from .parameters import TrainedHeadMaps

MASK_ROWS = 256
"""Rows scored at a time: all heads' scores of a long document would take a gigabyte."""

KL_ROWS = 48
"""Answering rows per document on which the indexer learns, and half as many others at least."""

KL_SPACING = 16
"""One row in so many of a long document, where most distances are."""


class DocumentMasks:
    """Which earlier rows of its own document each row may see, per document; None where all."""

    def __init__(self, mask_D: list[torch.Tensor | None]) -> None:
        self.mask_D = mask_D


class DenseAttend:
    """The `Attend` seam over documents `cu_len[i]:cu_len[i+1]`.

    With `learn_index`, `index_losses` collects, per layer, the KL divergence from its indexer's scores
    to the attention that the layer really paid (DeepSeek-V3.2 report, section 2.1). A layer that
    shares the choice of an earlier one teaches that one's indexer: else the choice would lack what
    only the later layer looks for.
    With `is_sparse`, attention sees only what the indexer chose. `answering_T` is true for rows that
    predict a token of an answer: the indexer learns on these beside rows drawn from all, for they are
    few in a long text and the only ones that have to find something in it.
    """

    def __init__(
        self,
        cu_len: Sequence[int],
        *,
        learn_index: bool,
        is_sparse: bool,
        generator: torch.Generator,
        answering_T: torch.Tensor | None = None,
    ) -> None:
        self.index_losses: list[torch.Tensor] = []
        self._documents = list(pairwise(cu_len))
        self._learn_index = learn_index
        self._is_sparse = is_sparse
        self._generator = generator
        self._answering_T = answering_T
        self._index_rows: IndexRows | None = None

    def select(self, layer: int, rows: IndexRows) -> Selection | None:
        self._index_rows = rows
        if not self._is_sparse:
            return None
        with torch.no_grad():
            return DocumentMasks([self._mask(rows, *document) for document in self._documents])

    def attend(self, layer: int, rows: AttentionRows, selection: Selection | None) -> torch.Tensor:
        assert isinstance(rows.head_maps, TrainedHeadMaps)
        key_NdL, value_NVL = rows.head_maps.weights()
        num_heads = key_NdL.shape[0]
        k_nope = torch.einsum("tl,ndl->ntd", rows.latent_TL, key_NdL)
        value = torch.einsum("tl,nvl->ntv", rows.latent_TL, value_NVL)
        k_rope = rows.k_rope_Tr.to(k_nope.dtype).expand(num_heads, -1, -1)
        key = torch.cat((k_nope, k_rope), -1)
        q_rope = rows.q_rope_TNr.to(rows.q_nope_TNd.dtype)
        query = torch.cat((rows.q_nope_TNd, q_rope), -1).transpose(0, 1)
        # splits, not slices: the gradient of a slice is as long as all documents together
        lengths = [stop - start for start, stop in self._documents]
        parts = zip(
            query.split(lengths, 1),
            key.split(lengths, 1),
            value.split(lengths, 1),
            selection.mask_D if isinstance(selection, DocumentMasks) else [None] * len(lengths),
            strict=True,
        )
        outputs = [
            causal_attention(q, k, v, scale=rows.scale, mask_nn=mask) for q, k, v, mask in parts
        ]
        if self._learn_index and self._index_rows is not None:
            self._learn(self._index_rows, query.detach(), key.detach(), rows.scale)
        return torch.cat(outputs, 1).transpose(0, 1)

    def _mask(self, rows: IndexRows, start: int, stop: int) -> torch.Tensor | None:
        num_rows = stop - start
        if num_rows <= rows.top_k:
            return None
        mask = torch.ones(num_rows, num_rows, dtype=torch.bool).tril_()
        # the first top_k rows see all there is
        for first in range(rows.top_k, num_rows, MASK_ROWS):
            last = min(first + MASK_ROWS, num_rows)
            at, keys = slice(start + first, start + last), slice(start, start + last)
            score = index_scores(rows.q_TJD[at], rows.weight_TJ[at], rows.key_TD[keys].float())
            seen = mask[first:last, :last]
            best = score.masked_fill_(~seen, -torch.inf).topk(rows.top_k, -1).indices
            mask[first:last, :last] = torch.zeros_like(seen).scatter_(1, best, True) & seen
        return mask

    def _learn(self, rows: IndexRows, query: torch.Tensor, key: torch.Tensor, scale: float) -> None:
        losses = []
        for start, stop in self._documents:
            if stop - start <= rows.top_k // 4:
                continue
            offset = self._learning_rows(start, stop)
            at = slice(start, stop)
            is_future = torch.arange(stop - start) > offset[:, None]
            paid = query[:, start + offset].float() @ key[:, at].float().transpose(1, 2) * scale
            target = paid.masked_fill(is_future, -torch.inf).softmax(-1).mean(0)
            q_TJD, weight_TJ = rows.q_TJD[start + offset], rows.weight_TJ[start + offset]
            score = index_scores(q_TJD, weight_TJ, rows.key_TD[at].float())
            log_index = score.masked_fill(is_future, -torch.inf).log_softmax(-1)
            log_index = log_index.masked_fill(is_future, 0.0)
            entropy = torch.special.entr(target).sum(-1)
            losses.append((-(target * log_index).sum(-1) - entropy).mean())
        if losses:
            self.index_losses.append(torch.stack(losses).mean())

    def _learning_rows(self, start: int, stop: int) -> torch.Tensor:
        """Draw rows of one document, counted from its start."""
        num_anywhere = max(KL_ROWS // 2, (stop - start) // KL_SPACING)
        anywhere = torch.randint(0, stop - start, (num_anywhere,), generator=self._generator)
        if self._answering_T is None or not self._answering_T[start:stop].any():
            return anywhere
        answering = self._answering_T[start:stop].nonzero().squeeze(1)
        drawn = torch.randint(0, len(answering), (KL_ROWS,), generator=self._generator)
        return torch.cat((anywhere, answering[drawn]))
