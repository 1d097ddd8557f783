"""Runs a step: host lists to tensors, the checked pages, the decoder, the sampler.

T rows of S sequences, R of them sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.positions import positions
from tenantry_runtime.cache.tags import Tracker
from tenantry_runtime.core import ChosenLogprob, Sampling
from tenantry_runtime.models.batch import ForwardBatch

from .constraints import MaskFinder
from .logprobs import Likelihoods, likelihoods_of, told
from .masks import masked_rows
from .member import StepInFlight
from .penalties import table_of
from .plan import StepPlan, StepResult
from .sampler import Sampled, SamplerState, sample

CacheT = TypeVar("CacheT")
CacheT_contra = TypeVar("CacheT_contra", contravariant=True)


class ModelShape(Protocol):
    """What the engine needs to know of a model."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def context_tokens(self) -> int: ...


class Decoder(Protocol[CacheT_contra]):
    """One checkpoint, ready to run (`models.Decoder`)."""

    @property
    def config(self) -> ModelShape: ...

    def forward(
        self, batch: ForwardBatch, checked: CheckedBatch, cache: CacheT_contra
    ) -> torch.Tensor:
        """Write the rows into their pages; return the wanted rows' states [R, H]."""
        ...

    def logits(self, hidden_RH: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [R, V]."""
        ...


@dataclass(frozen=True, slots=True)
class StepHandle:
    """A launched step, whose outcome may still be on the device."""

    plan: StepPlan
    sampled: Sampled | None
    """None when no entry wants a token."""
    likelihoods: Likelihoods | None
    """None when no entry asks how likely its token is."""
    ok_S: torch.Tensor
    tracker: Tracker
    checked: CheckedBatch

    def collect(self) -> StepResult:
        """Wait for the step and bring its outcome to the host."""
        tokens_R: list[int | None] = []
        if self.sampled is not None:
            drawn = zip(*(column.tolist() for column in self.sampled), strict=True)
            tokens_R = [token_id if is_finite else None for token_id, is_finite in drawn]
        ok_S = tuple(self.ok_S.tolist())
        return StepResult(
            tokens_S=self.plan.place(tokens_R),
            ok_S=ok_S,
            fault_S=() if all(ok_S) else self.tracker.faults(self.checked),
            logprobs_S=logprobs_of(self.plan, self.likelihoods, tokens_R),
        )


class Runner(Generic[CacheT]):
    """A decoder with its cache and the tracker of its pages."""

    def __init__(
        self,
        *,
        decoder: Decoder[CacheT],
        cache: CacheT,
        tracker: Tracker,
        vocab_limit: int | None = None,
        device: str = "cpu",
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._tracker = tracker
        self._vocab_limit = vocab_limit
        num_tokens = decoder.config.vocab_size
        self._masks = MaskFinder(min(vocab_limit or num_tokens, num_tokens))
        self._device = device

    @property
    def runs_ahead(self) -> bool:
        return False

    @torch.inference_mode()
    def launch(
        self,
        plan: StepPlan,
        *,
        earlier: Sequence[StepInFlight] = (),
        settle: Callable[[], None] | None = None,
    ) -> StepHandle:
        """Compute the step, as those before it have been: what is known of them is all there is."""
        pages = plan.pages()
        checked = self._tracker.check(pages)
        batch = self._forward_batch(plan, pages)
        hidden_RH = self._decoder.forward(batch, checked, self._cache)
        sampled, found = self._sample(plan, hidden_RH)
        ok_S = self._tracker.confirm(checked)
        return StepHandle(plan, sampled, found, ok_S, self._tracker, checked)

    def _forward_batch(self, plan: StepPlan, pages: PageBatch) -> ForwardBatch:
        _, position_T = positions(pages.start_S, pages.read_len_S)
        token_id_T = list(chain.from_iterable(entry.token_ids for entry in plan.entries))
        cu_len = (0, *accumulate(len(entry.token_ids) for entry in plan.entries))
        last_rows = [
            end - 1
            for entry, end in zip(plan.entries, cu_len[1:], strict=True)
            if entry.wants_token
        ]
        return ForwardBatch(
            token_ids_T=torch.tensor(token_id_T, device=self._device),
            positions_T=torch.from_numpy(position_T).to(self._device),
            cu_len=cu_len,
            logit_rows_R=torch.tensor(last_rows, dtype=torch.int64, device=self._device),
        )

    def _sample(
        self, plan: StepPlan, hidden_RH: torch.Tensor
    ) -> tuple[Sampled | None, Likelihoods | None]:
        samplings_R, states_R = sampling_of(plan)
        if not samplings_R:
            return None, None
        logits_RV = self._decoder.logits(hidden_RH)[:, : self._vocab_limit]
        masks = self._masks.find(plan.guides)
        allowed_RV = masked_rows(logits_RV, masks)
        sampled = sample(allowed_RV, samplings_R, states_R, tables_R=tables_of(plan))
        # of the model's own logits, whatever is made of them
        found = None
        if plan.wants_logprobs:
            found = likelihoods_of(logits_RV, sampled.tokens_R, samplings_R)
        return sampled, found


def tables_of(plan: StepPlan) -> list[NDArray[np.int64] | None]:
    """Return what rows that ask for penalties or biases have; nothing where none asks."""
    if not plan.is_adjusting:
        return []
    tables_R: list[NDArray[np.int64] | None] = []
    for entry in plan.wanting:
        history = entry.sequence.history
        if history is not None:
            history.follow(entry.sequence.tokens, entry.end)
        tables_R.append(None if history is None else table_of(history))
    return tables_R


def logprobs_of(
    plan: StepPlan, found: Likelihoods | None, tokens_R: Sequence[int | None]
) -> tuple[ChosenLogprob | None, ...]:
    """Return, by entry, how likely its token was; nothing where nobody asks."""
    if found is None:
        return ()
    samplings_R = [entry.sequence.submit.sampling for entry in plan.wanting]
    return plan.place(told(found, tokens_R, samplings_R))


def sampling_of(plan: StepPlan) -> tuple[list[Sampling], list[SamplerState]]:
    """Return how the tokens that a step wants are drawn, and where their noise stands."""
    samplings_R, states_R = [], []
    for entry in plan.wanting:
        sampling = entry.sequence.submit.sampling
        samplings_R.append(sampling)
        states_R.append(SamplerState(sampling.seed, entry.end))
    return samplings_R, states_R
