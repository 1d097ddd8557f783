"""Runs steps on a device that nobody waits for: one copy to it, one launch or many, one copy back.

| step | how |
|---|---|
| one row per sequence, each wanting a token | padded to a bucket and replayed as a graph (`models/graph_step.py`) |
| any other: prefill chunks | launched op by op |
| either, where a row has a grammar | masks are found once the forward pass is launched, and sampling waits for them |

All compute the same function of the same fields (`_Stages`). A sequence that does not pass the
check is masked by the device in the step itself; the host learns of it, with the tokens, from the
copy back. A token need not have come back to be read by the next step: `launch` takes the handles
of earlier ones.

S sequences, L page-table columns, T rows, R of them sampled, P tokens of earlier steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tenantry_runtime.cache.checked import CheckedBatch
from tenantry_runtime.cache.device_pages import (
    DevicePages,
    num_touched,
    page_shapes,
    write_pages,
)
from tenantry_runtime.cache.page_batch import PageBatch
from tenantry_runtime.cache.tags import DeviceTracker
from tenantry_runtime.cache.words import Layout, staged, to_device
from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.models.batch import ForwardBatch
from tenantry_runtime.models.graph_step import GraphSteps

from .constraints import MaskFinder
from .device_sampler import (
    AdjustedRow,
    SamplingForm,
    SamplingKind,
    adjusted_on_device,
    kind_for,
    sample_on_device,
    sampling_shapes,
    write_adjusted,
    write_sampling,
)
from .logprobs import likelihoods, num_words, packed, unpacked
from .masks import mask_words, masked, num_mask_words
from .member import StepInFlight
from .penalties import table_of
from .plan import Entry, StepPlan, StepResult
from .runner import CacheT, Decoder, logprobs_of, sampling_of
from .sequence import pages_for

# of rows: padding at most doubles a step, and beyond 16 costs less than half of one
_ROW_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# of page-table columns, 4k to 1M tokens: kernels read no further than a sequence's length, so that a
# wide table costs the programs that find nothing to do
_COLUMN_BUCKETS = (64, 256, 1024, 4096, 16384)
# of tokens that a row's penalties and biases are about: distinct ones, of long prompts too
_ADJUSTED_BUCKETS = (64, 512, 4096, 16384, 65536)


class Bucket(NamedTuple):
    """What is fixed in a captured step."""

    num_rows: int
    num_columns: int
    sampling: SamplingForm


@dataclass(frozen=True, slots=True)
class _Form:
    """The shapes of a step's fields, and what the host decides of it."""

    layout: Layout
    cu_len: tuple[int, ...]
    read_len_S: tuple[int, ...]
    sampling: SamplingForm
    wants_tokens: bool


class DeviceHandle:
    """A launched step, whose outcome is on its way to the host."""

    def __init__(
        self, plan: StepPlan, outcome: torch.Tensor, num_sampled: int, num_likely: int
    ) -> None:
        """outcome: tokens [R], whether their logits are finite [R], faults [S], each padded; then how
        likely the tokens were, in `num_likely` words, where somebody asks for it."""
        self.plan = plan
        self._num_rows = num_sampled
        self._num_likely = num_likely
        self.tokens_R = outcome[:num_sampled]
        """On the device."""
        self._rows = {id(entry.sequence): row for row, entry in enumerate(plan.wanting)}
        self._arrived: torch.cuda.Event | None = None
        if torch.cuda.is_available():
            self._host = torch.empty_like(outcome, device="cpu", pin_memory=True)
            self._host.copy_(outcome, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()
        else:
            self._host = outcome.to("cpu", non_blocking=True)

    def row_of(self, entry: Entry) -> int | None:
        """Return where in `tokens_R` the token is that this entry reads; None if it is another's."""
        return self._rows.get(id(entry.sequence))

    def collect(self) -> StepResult:
        """Wait until the outcome has arrived; nothing else is waited for."""
        if self._arrived is not None:
            self._arrived.synchronize()
        words = self._host.numpy()
        plan, num_rows = self.plan, self._num_rows
        ends = (num_rows, 2 * num_rows, len(words) - self._num_likely)
        tokens_R, is_finite_R, fault_S, likely = np.split(words, ends)
        drawn = zip(tokens_R.tolist(), is_finite_R.tolist(), strict=True)
        told_R = [token_id if is_finite else None for token_id, is_finite in drawn]
        faults = tuple(fault_S.tolist()[: len(plan.entries)])
        found = unpacked(torch.from_numpy(likely), num_rows) if self._num_likely else None
        return StepResult(
            tokens_S=plan.place(told_R),
            ok_S=tuple(fault == 0 for fault in faults),
            fault_S=faults if any(faults) else (),
            logprobs_S=logprobs_of(plan, found, told_R[: len(plan.wanting)]),
        )


class DeviceRunner(Generic[CacheT]):
    """A decoder with its cache and the tracker of its pages."""

    def __init__(
        self,
        *,
        decoder: Decoder[CacheT],
        cache: CacheT,
        tracker: DeviceTracker,
        device: str,
        max_batch: int,
        vocab_limit: int | None = None,
        has_graphs: bool = True,
        runs_ahead: bool = False,
    ) -> None:
        """`max_batch`: sequences of a step at most.

        `has_graphs`: whether steps are padded and captured; else pages go through the tracker's
        `check`, which is for those who put faults into it.
        """
        self._tracker = tracker
        self._device = torch.device(device)
        self._num_tokens = min(vocab_limit or decoder.config.vocab_size, decoder.config.vocab_size)
        self._masks = MaskFinder(self._num_tokens)
        self._has_graphs = has_graphs
        self.runs_ahead = runs_ahead
        self._row_buckets = _up_to(_ROW_BUCKETS, max_batch)
        self._column_buckets = _up_to(_COLUMN_BUCKETS, pages_for(decoder.config.context_tokens))
        # a step of decoding and the chunks before it may be on their way
        self._stages = _Stages(decoder, cache, tracker, self._num_tokens)
        self._steps: GraphSteps[Bucket] = GraphSteps(
            _OfBuckets(self._stages), device=self._device, max_tokens=4 * max_batch
        )

    def warm_up(self) -> None:
        """Prepare the steps of greedy and drawn tokens for contexts of the least width."""
        if self._has_graphs:
            for num_rows in self._row_buckets:
                for kind in (SamplingKind.GREEDY, SamplingKind.DRAWING):
                    self._prepare(Bucket(num_rows, self._column_buckets[0], SamplingForm(kind)))

    @torch.inference_mode()
    def launch(
        self,
        plan: StepPlan,
        *,
        earlier: Sequence[StepInFlight] = (),
        settle: Callable[[], None] | None = None,
    ) -> DeviceHandle:
        """Start the step; on a GPU it still runs when this returns.

        The last token of a sequence that an earlier step samples for is taken from there, whatever the
        entry says of it. `settle` is called once the forward pass is launched, if a mask depends on one.
        """
        launched = [handle for handle in earlier if isinstance(handle, DeviceHandle)]
        pages = plan.pages()
        samplings_R, states_R = sampling_of(plan)
        adjusted_R = adjusted_of(plan)
        is_masked = any(guide is not None for guide in plan.guides)
        sampling = SamplingForm(
            kind_for(samplings_R),
            _width(adjusted_R),
            plan.wants_logprobs,
            num_mask_words(self._num_tokens) if is_masked else 0,
        )
        bucket = self._bucket(plan, pages, sampling)
        if bucket is not None:
            form = _padded_form(bucket)
        else:
            form = _exact_form(plan, pages, len(samplings_R), sampling)
        words = form.layout.host()
        fields = form.layout.fields(words)
        write_pages(fields, pages)
        _write_rows(fields, plan.entries, launched)
        write_sampling(fields, samplings_R, states_R, self._num_tokens)
        write_adjusted(fields, adjusted_R, self._num_tokens)
        tokens = [handle.tokens_R for handle in launched]
        num_rows = len(fields["wanted"])
        # of a sequence that no earlier step samples for, all tokens are known
        late = settle if _has_late_guide(plan, launched) else None
        find_masks = partial(self._find_masks, plan, num_rows, late) if is_masked else None
        if bucket is not None:
            self._prepare(bucket)
            outcome = self._steps.run(bucket, staged(words), tokens, find_masks)
            return self._handle(plan, outcome, num_rows, sampling)
        words_W = to_device(words, self._device)
        # one more than there are, for rows that read none
        tokens_P = torch.cat([*tokens, words_W[:1]])
        checked = None if self._has_graphs else self._tracker.check(pages)
        found = self._stages.begin(form, words_W, tokens_P, checked)
        masks_RW = None if find_masks is None else find_masks().to(self._device, non_blocking=True)
        outcome = self._stages.end(form, words_W, found, masks_RW)
        return self._handle(plan, outcome, num_rows, sampling)

    def _find_masks(
        self, plan: StepPlan, num_rows: int, settle: Callable[[], None] | None
    ) -> torch.Tensor:
        if settle is not None:
            # grammars follow the tokens before this one, which come while the forward pass runs
            settle()
        masks = self._masks.find(plan.guides)
        return staged(mask_words(masks, num_rows, num_mask_words(self._num_tokens)))

    def _handle(
        self, plan: StepPlan, outcome: torch.Tensor, num_sampled: int, sampling: SamplingForm
    ) -> DeviceHandle:
        num_likely = num_words(num_sampled, self._num_tokens) if sampling.has_logprobs else 0
        return DeviceHandle(plan, outcome, num_sampled, num_likely)

    def _bucket(self, plan: StepPlan, pages: PageBatch, sampling: SamplingForm) -> Bucket | None:
        is_decoding = all(len(e.token_ids) == 1 and e.wants_token for e in plan.entries)
        if not (self._has_graphs and is_decoding):
            return None
        num_rows = _least(self._row_buckets, len(plan.entries))
        num_columns = _least(self._column_buckets, num_touched(pages))
        if num_rows is None or num_columns is None:
            return None
        return Bucket(num_rows, num_columns, sampling)

    def _prepare(self, bucket: Bucket) -> None:
        if bucket in self._steps.buckets:
            return
        layout = _padded_form(bucket).layout
        words = layout.host()
        fields = layout.fields(words)
        write_pages(fields, PageBatch(leases_S=(), owner_S=(), start_S=(), read_len_S=()))
        _write_rows(fields, (), ())
        write_sampling(fields, (), (), self._num_tokens)
        write_adjusted(fields, (), self._num_tokens)
        blank = mask_words(None, bucket.num_rows, bucket.sampling.num_mask_words)
        self._steps.prepare(
            bucket,
            torch.from_numpy(words),
            torch.from_numpy(blank) if bucket.sampling.num_mask_words else None,
        )


class _Stages(Generic[CacheT]):
    """Computes a step from its fields, all on the device."""

    def __init__(
        self, decoder: Decoder[CacheT], cache: CacheT, tracker: DeviceTracker, num_tokens: int
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._tracker = tracker
        self._num_tokens = num_tokens

    def begin(
        self,
        form: _Form,
        words_W: torch.Tensor,
        tokens_P: torch.Tensor,
        checked: CheckedBatch | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Return faults [S]; then, where tokens are wanted, logits [R, V] and each row's last token [R]."""
        views = form.layout.views(words_W)
        if checked is None:
            checked = self._tracker.admit(DevicePages.of(views), form.read_len_S)
        source_T = views["source"]
        earlier_T = tokens_P[source_T.clamp(min=0)]
        batch = ForwardBatch(
            token_ids_T=torch.where(source_T < 0, views["token"], earlier_T),
            positions_T=views["position"],
            cu_len=form.cu_len,
            logit_rows_R=views["wanted"],
        )
        hidden_RH = self._decoder.forward(batch, checked, self._cache)
        faults_S = self._tracker.settle(checked)
        if not form.wants_tokens:
            return (faults_S,)
        logits_RV = self._decoder.logits(hidden_RH)[:, : self._num_tokens]
        return faults_S, logits_RV, batch.token_ids_T[views["wanted"]]

    def end(
        self,
        form: _Form,
        words_W: torch.Tensor,
        found: tuple[torch.Tensor, ...],
        masks_RW: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return what `DeviceHandle` takes."""
        if not form.wants_tokens:
            return found[0]
        views = form.layout.views(words_W)
        faults_S, logits_RV, last_R = found
        adjusted_RV = adjusted_on_device(logits_RV, views, last_R)
        if masks_RW is not None:
            adjusted_RV = masked(adjusted_RV, masks_RW)
        sampled = sample_on_device(adjusted_RV, views, form.sampling.kind)
        parts = [sampled.tokens_R, sampled.is_finite_R.long(), faults_S]
        if form.sampling.has_logprobs:
            # of the model's own logits, whatever is made of them
            parts.append(packed(likelihoods(logits_RV, sampled.tokens_R)))
        return torch.cat(parts)


class _OfBuckets(Generic[CacheT]):
    """The stages of padded steps (`models.graph_step.Stages`)."""

    def __init__(self, stages: _Stages[CacheT]) -> None:
        self._stages = stages

    def begin(
        self, bucket: Bucket, words_W: torch.Tensor, tokens_P: torch.Tensor, /
    ) -> tuple[torch.Tensor, ...]:
        return self._stages.begin(_padded_form(bucket), words_W, tokens_P)

    def end(
        self,
        bucket: Bucket,
        words_W: torch.Tensor,
        found: tuple[torch.Tensor, ...],
        late_L: torch.Tensor | None,
        /,
    ) -> torch.Tensor:
        return self._stages.end(_padded_form(bucket), words_W, found, late_L)


def _shapes(
    num_sequences: int,
    num_columns: int,
    num_rows: int,
    num_sampled: int,
    sampling: SamplingForm,
) -> dict[str, tuple[int, ...]]:
    """Return the fields of a step: pages, rows, sampling.

    token, source: of each row its token, and where among the tokens of earlier steps it is to be
    found instead, or -1; wanted: the rows that are sampled.
    """
    rows = {"token": (num_rows,), "source": (num_rows,), "wanted": (num_sampled,)}
    pages = page_shapes(num_sequences, num_columns, num_rows)
    return pages | rows | sampling_shapes(num_sampled, sampling.num_adjusted)


def _padded_form(bucket: Bucket) -> _Form:
    num_rows = bucket.num_rows
    return _Form(
        layout=Layout.of(
            _shapes(num_rows, bucket.num_columns, num_rows, num_rows, bucket.sampling)
        ),
        cu_len=tuple(range(num_rows + 1)),
        read_len_S=(bucket.num_columns * PAGE_TOKENS,) * num_rows,
        sampling=bucket.sampling,
        wants_tokens=True,
    )


def _exact_form(
    plan: StepPlan, pages: PageBatch, num_sampled: int, sampling: SamplingForm
) -> _Form:
    num_columns = num_touched(pages)
    shapes = _shapes(len(plan.entries), num_columns, plan.num_tokens, num_sampled, sampling)
    return _Form(
        layout=Layout.of(shapes),
        cu_len=(0, *accumulate(len(entry.token_ids) for entry in plan.entries)),
        read_len_S=tuple(pages.read_len_S),
        sampling=sampling,
        wants_tokens=num_sampled > 0,
    )


def _write_rows(
    fields: Mapping[str, NDArray[np.int64]],
    entries: Sequence[Entry],
    earlier: Sequence[DeviceHandle],
) -> None:
    """Fill tokens and the rows that are sampled, of padding too."""
    ends = list(accumulate(len(entry.token_ids) for entry in entries))
    num_rows = ends[-1] if ends else 0
    fields["token"][:num_rows] = list(chain.from_iterable(e.token_ids for e in entries))
    fields["source"][:] = -1
    first = 0
    for handle in earlier:
        for entry, end in zip(entries, ends, strict=True):
            row = handle.row_of(entry)
            if row is not None:
                fields["source"][end - 1] = first + row
        first += len(handle.tokens_R)
    wanted = [end - 1 for entry, end in zip(entries, ends, strict=True) if entry.wants_token]
    fields["wanted"][: len(wanted)] = wanted
    # a padded step samples every row
    num_padding = len(fields["wanted"]) - len(wanted)
    fields["wanted"][len(wanted) :] = np.arange(num_rows, num_rows + num_padding)


def _has_late_guide(plan: StepPlan, earlier: Sequence[DeviceHandle]) -> bool:
    """Whether an earlier step samples for a sequence that has a grammar."""
    guided = [entry for entry in plan.wanting if entry.sequence.guide is not None]
    return any(handle.row_of(entry) is not None for handle in earlier for entry in guided)


def adjusted_of(plan: StepPlan) -> list[AdjustedRow | None]:
    """Return what rows that ask for penalties or biases have; nothing where none asks."""
    if not plan.is_adjusting:
        return []
    rows: list[AdjustedRow | None] = []
    for entry in plan.wanting:
        sequence, last = entry.sequence, entry.end - 1
        history = sequence.history
        if history is None:
            rows.append(None)
            continue
        history.follow(sequence.tokens, last)
        is_answer = history.is_of_answer(last)
        rows.append(AdjustedRow(sequence.submit.sampling, table_of(history), is_answer))
    return rows


def _width(adjusted_R: Sequence[AdjustedRow | None]) -> int:
    """Return how many tokens each row's table has room for; 0 where no row asks for any."""
    if not adjusted_R:
        return 0
    most = max(row.table.shape[1] for row in adjusted_R if row is not None)
    return _least(_ADJUSTED_BUCKETS, most) or most


def _up_to(buckets: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the buckets that are smaller, and the most."""
    return (*(bucket for bucket in buckets if bucket < most), most)


def _least(buckets: Sequence[int], wanted: int) -> int | None:
    return next((bucket for bucket in buckets if bucket >= wanted), None)
