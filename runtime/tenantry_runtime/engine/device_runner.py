"""Runs steps on a device that nobody waits for: one copy to it, one launch or many, one copy back.

| step | how |
|---|---|
| one row per sequence, each wanting a token | padded to a bucket and replayed as a graph (`models/graph_step.py`) |
| any other: prefill chunks | launched op by op |

Both compute the same function of the same fields (`_compute`). A sequence that does not pass the
check is masked by the device in the step itself; the host learns of it, with the tokens, from the
copy back. A token need not have come back to be read by the next step: `launch` takes the handles
of earlier ones.

S sequences, L page-table columns, T rows, R of them sampled, P tokens of earlier steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from .device_sampler import (
    SamplingKind,
    kind_for,
    sample_on_device,
    sampling_shapes,
    write_sampling,
)
from .plan import Entry, StepPlan, StepResult
from .runner import CacheT, Decoder, sampling_of
from .sequence import pages_for

# of rows: padding at most doubles a step, and beyond 16 costs less than half of one
_ROW_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# of page-table columns, 4k to 1M tokens: kernels read no further than a sequence's length, so that a
# wide table costs the programs that find nothing to do
_COLUMN_BUCKETS = (64, 256, 1024, 4096, 16384)


class Bucket(NamedTuple):
    """What is fixed in a captured step."""

    num_rows: int
    num_columns: int
    kind: SamplingKind


@dataclass(frozen=True, slots=True)
class _Form:
    """The shapes of a step's fields, and what the host decides of it."""

    layout: Layout
    cu_len: tuple[int, ...]
    read_len_S: tuple[int, ...]
    kind: SamplingKind
    wants_tokens: bool


class DeviceHandle:
    """A launched step, whose outcome is on its way to the host."""

    def __init__(self, plan: StepPlan, outcome: torch.Tensor, num_sampled: int) -> None:
        """outcome: tokens [R], whether their logits are finite [R], faults [S], each padded."""
        self.plan = plan
        self._num_rows = num_sampled
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
        num_rows, entries = self._num_rows, self.plan.entries
        tokens_R, is_finite_R, fault_S = np.split(words, (num_rows, 2 * num_rows))
        drawn = iter(zip(tokens_R.tolist(), is_finite_R.tolist(), strict=True))
        tokens_S: list[int | None] = []
        for entry in entries:
            token_id, is_finite = next(drawn) if entry.wants_token else (0, 0)
            tokens_S.append(token_id if is_finite else None)
        faults = tuple(fault_S.tolist()[: len(entries)])
        return StepResult(
            tokens_S=tuple(tokens_S),
            ok_S=tuple(fault == 0 for fault in faults),
            fault_S=faults if any(faults) else (),
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
    ) -> None:
        """`max_batch`: sequences of a step at most.

        `has_graphs`: whether steps are padded and captured; else pages go through the tracker's
        `check`, which is for those who put faults into it.
        """
        self._decoder = decoder
        self._cache = cache
        self._tracker = tracker
        self._device = torch.device(device)
        self._num_tokens = min(vocab_limit or decoder.config.vocab_size, decoder.config.vocab_size)
        self._has_graphs = has_graphs
        self._row_buckets = _up_to(_ROW_BUCKETS, max_batch)
        self._column_buckets = _up_to(_COLUMN_BUCKETS, pages_for(decoder.config.context_tokens))
        # a step of decoding and the chunks before it may be on their way
        self._steps: GraphSteps[Bucket] = GraphSteps(
            self._compute_bucket, device=self._device, max_tokens=4 * max_batch
        )

    def warm_up(self) -> None:
        """Prepare the steps of greedy and drawn tokens for contexts of the least width."""
        if self._has_graphs:
            for num_rows in self._row_buckets:
                for kind in (SamplingKind.GREEDY, SamplingKind.DRAWING):
                    self._prepare(Bucket(num_rows, self._column_buckets[0], kind))

    @torch.inference_mode()
    def launch(self, plan: StepPlan, earlier: Sequence[DeviceHandle] = ()) -> DeviceHandle:
        """Start the step; on a GPU it still runs when this returns.

        `earlier`: launched steps that have not been collected. The last token of a sequence that one
        of them samples for is taken from there, whatever the entry says of it.
        """
        pages = plan.pages()
        samplings_R, states_R = sampling_of(plan)
        kind = kind_for(samplings_R)
        bucket = self._bucket(plan, pages, kind)
        if bucket is not None:
            form = _padded_form(bucket)
        else:
            form = _exact_form(plan, pages, len(samplings_R), kind)
        words = form.layout.host()
        fields = form.layout.fields(words)
        write_pages(fields, pages)
        _write_rows(fields, plan.entries, earlier)
        write_sampling(fields, samplings_R, states_R, self._num_tokens)
        tokens = [handle.tokens_R for handle in earlier]
        if bucket is not None:
            self._prepare(bucket)
            outcome = self._steps.run(bucket, staged(words), tokens)
            return DeviceHandle(plan, outcome, bucket.num_rows)
        words_W = to_device(words, self._device)
        tokens_P = torch.cat(tokens) if tokens else words_W[:1]
        checked = None if self._has_graphs else self._tracker.check(pages)
        outcome = self._compute(form, words_W, tokens_P, checked)
        return DeviceHandle(plan, outcome, len(samplings_R))

    def _bucket(self, plan: StepPlan, pages: PageBatch, kind: SamplingKind) -> Bucket | None:
        is_decoding = all(len(e.token_ids) == 1 and e.wants_token for e in plan.entries)
        if not (self._has_graphs and is_decoding):
            return None
        num_rows = _least(self._row_buckets, len(plan.entries))
        num_columns = _least(self._column_buckets, num_touched(pages))
        if num_rows is None or num_columns is None:
            return None
        return Bucket(num_rows, num_columns, kind)

    def _prepare(self, bucket: Bucket) -> None:
        if bucket in self._steps.buckets:
            return
        layout = _padded_form(bucket).layout
        words = layout.host()
        fields = layout.fields(words)
        write_pages(fields, PageBatch(leases_S=(), owner_S=(), start_S=(), read_len_S=()))
        _write_rows(fields, (), ())
        write_sampling(fields, (), (), self._num_tokens)
        self._steps.prepare(bucket, torch.from_numpy(words))

    def _compute_bucket(
        self, bucket: Bucket, words_W: torch.Tensor, tokens_P: torch.Tensor
    ) -> torch.Tensor:
        return self._compute(_padded_form(bucket), words_W, tokens_P)

    def _compute(
        self,
        form: _Form,
        words_W: torch.Tensor,
        tokens_P: torch.Tensor,
        checked: CheckedBatch | None = None,
    ) -> torch.Tensor:
        """Compute a step from its fields, all on the device; return what `DeviceHandle` takes."""
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
        parts = []
        if form.wants_tokens:
            logits_RV = self._decoder.logits(hidden_RH)[:, : self._num_tokens]
            sampled = sample_on_device(logits_RV, views, form.kind)
            parts = [sampled.tokens_R, sampled.is_finite_R.long()]
        return torch.cat([*parts, self._tracker.settle(checked)])


def _shapes(
    num_sequences: int, num_columns: int, num_rows: int, num_sampled: int
) -> dict[str, tuple[int, ...]]:
    """Return the fields of a step: pages, rows, sampling.

    token, source: of each row its token, and where among the tokens of earlier steps it is to be
    found instead, or -1; wanted: the rows that are sampled.
    """
    rows = {"token": (num_rows,), "source": (num_rows,), "wanted": (num_sampled,)}
    pages = page_shapes(num_sequences, num_columns, num_rows)
    return pages | rows | sampling_shapes(num_sampled)


def _padded_form(bucket: Bucket) -> _Form:
    num_rows = bucket.num_rows
    return _Form(
        layout=Layout.of(_shapes(num_rows, bucket.num_columns, num_rows, num_rows)),
        cu_len=tuple(range(num_rows + 1)),
        read_len_S=(bucket.num_columns * PAGE_TOKENS,) * num_rows,
        kind=bucket.kind,
        wants_tokens=True,
    )


def _exact_form(plan: StepPlan, pages: PageBatch, num_sampled: int, kind: SamplingKind) -> _Form:
    shapes = _shapes(len(plan.entries), num_touched(pages), plan.num_tokens, num_sampled)
    return _Form(
        layout=Layout.of(shapes),
        cu_len=(0, *accumulate(len(entry.token_ids) for entry in plan.entries)),
        read_len_S=tuple(pages.read_len_S),
        kind=kind,
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


def _up_to(buckets: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the buckets that are smaller, and the most."""
    return (*(bucket for bucket in buckets if bucket < most), most)


def _least(buckets: Sequence[int], wanted: int) -> int | None:
    return next((bucket for bucket in buckets if bucket >= wanted), None)
