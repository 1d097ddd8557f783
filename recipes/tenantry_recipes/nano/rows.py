"""Batches of packed rows for the trainer, made in a process beside it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from torch.utils.data import DataLoader, Dataset

from tenantry_runtime.text import load_text

from .examples import MIXTURES, PackedRow, RowSource, TextEncoder
from .models import NanoModel, checkpoint_directory
from .phases import Phase
from .tasks.task import GLM, KIMI


class PhaseBatches(Dataset[list[PackedRow]]):
    """Batch k of a phase, for k from `first_step` on."""

    def __init__(self, model: NanoModel, phase: Phase, *, seed: int, first_step: int) -> None:
        self._model = model
        self._phase = phase
        self._seed = seed
        self._first_step = first_step

    @cached_property
    def _rows(self) -> RowSource:
        # made where rows are made: a tokenizer does not travel between processes
        text = load_text(checkpoint_directory(self._model.name))
        return RowSource(
            encoder=TextEncoder(text),
            mixture=MIXTURES[self._phase.row_tokens],
            row_tokens=self._phase.row_tokens,
            # phases draw from streams of their own
            seed=self._seed * 1000 + sum(map(ord, self._phase.name)),
            persona=KIMI if self._model.family == "kimi" else GLM,
        )

    def __len__(self) -> int:
        return self._phase.num_steps - self._first_step

    def __getitem__(self, index: int) -> list[PackedRow]:
        count = self._phase.rows_per_step
        first = (self._first_step + index) * count
        return [self._rows.row(number) for number in range(first, first + count)]


def row_batches(
    model: NanoModel, phase: Phase, *, seed: int, first_step: int
) -> Iterator[list[PackedRow]]:
    """Yield one batch per step, in order."""
    batches = PhaseBatches(model, phase, seed=seed, first_step=first_step)
    if not len(batches):
        return
    yield from DataLoader(
        batches,
        batch_size=None,
        num_workers=1,
        prefetch_factor=4,
        collate_fn=_as_it_is,
        multiprocessing_context="spawn",
    )


def _as_it_is(rows: list[PackedRow]) -> list[PackedRow]:
    return rows
