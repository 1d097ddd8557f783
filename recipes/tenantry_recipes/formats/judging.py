"""Judges every item of a plan that was not judged before, variant by variant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from tenantry_recipes.nano.evaluate import judge
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_recipes.nano.responder import Responder
from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.text import load_text

from .divergence import Side, diverge
from .items import JUDGED, ItemSource
from .results import Apart, Cell, Results, Subject, Verdict
from .variants import RELEASED, Comparison, Variant, comparisons_of, load_variant

_LEAST_BLOCK = 32
"""Items between two writes of one stream: minutes of work at the longest length."""
_BLOCK_PER_STREAM = 4
"""So that all streams are busy most of the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """What is asked for."""

    models: tuple[str, ...]
    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    streams: tuple[int, ...]
    num_items: int
    """Per task and length."""
    num_divergences: int
    """Of those, items whose next-token distributions are compared too."""
    seed: int = 0
    threads: int = 1
    has_controls: bool = True

    def comparisons(self) -> list[Comparison]:
        return [
            comparison
            for model in self.models
            for comparison in comparisons_of(model)
            if self.has_controls or not comparison.is_control
        ]

    def variants(self, model: str) -> list[Variant]:
        """Return the variants of a model, the released one first."""
        compared = (each for each in self.comparisons() if each.model == model)
        both = (variant for each in compared for variant in (each.reference, each.candidate))
        return list(dict.fromkeys(both))

    def cells(self, model: str, streams: int) -> list[Cell]:
        """Return where the model's items are judged: tasks at lengths that it knows them at."""
        return [
            Cell(model, task, length, streams)
            for task in self.tasks
            for length in self.lengths
            if JUDGED[task].fits(length)
        ]


class Heard(Protocol):
    """Who hears how it goes."""

    def begin(self, num_steps: int, num_done: int) -> None:
        """So many items are judged or compared in all, of which so many were before."""
        ...

    def advance(self, num_steps: int, what: str) -> None:
        """So many more are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A plan on its way."""

    plan: EvaluationPlan
    results: Results
    heard: Heard
    work: Path
    """Where converted checkpoints are made."""

    def run(self) -> None:
        """Judge what is missing; raise ResultsMismatch before anything is judged."""
        for model in self.plan.models:
            revision = Checkpoint(checkpoint_directory(model)).revision()
            self.results.require_subject(
                Subject(model=model, seed=self.plan.seed, revision=revision)
            )
        self._begin()
        for model in self.plan.models:
            items = ItemSource(text=load_text(checkpoint_directory(model)), seed=self.plan.seed)
            for variant in self.plan.variants(model):
                self._judge_variant(model, variant, items)
            for variant in self.plan.variants(model):
                if variant != RELEASED:
                    self._compare_variant(model, variant, items)

    def _judge_variant(self, model: str, variant: Variant, items: ItemSource) -> None:
        cells = [cell for streams in self.plan.streams for cell in self.plan.cells(model, streams)]
        if not any(self._unjudged(cell, variant) for cell in cells):
            return
        threads = self.plan.threads
        loaded = load_variant(model, variant, work=self.work, threads=threads)
        for streams in self.plan.streams:
            with loaded.responder(streams=streams, threads=threads) as responder:
                for cell in self.plan.cells(model, streams):
                    self.judge_cell(responder, cell, variant, items)

    def judge_cell(
        self, responder: Responder, cell: Cell, variant: Variant, items: ItemSource
    ) -> None:
        """Have a variant answer the items of a cell that it did not answer before."""
        block = max(_LEAST_BLOCK, _BLOCK_PER_STREAM * cell.streams)
        for numbers in _blocks(self._unjudged(cell, variant), block):
            examples = [items.item(cell.task, cell.length, number) for number in numbers]
            verdicts = judge(responder, examples)
            self.results.add(
                Verdict(cell=cell, variant=variant.name, number=number, is_right=is_right)
                for number, is_right in zip(numbers, verdicts, strict=True)
            )
            self.heard.advance(len(numbers), f"{cell.model} {variant.name}")

    def _compare_variant(self, model: str, variant: Variant, items: ItemSource) -> None:
        cells = [cell for streams in self.plan.streams for cell in self.plan.cells(model, streams)]
        if not any(self._uncompared(cell, variant) for cell in cells):
            return
        threads = self.plan.threads
        both = [
            load_variant(model, each, work=self.work, threads=threads)
            for each in (RELEASED, variant)
        ]
        for streams in self.plan.streams:
            reference, candidate = (Side.of(each, streams=streams) for each in both)
            for cell in self.plan.cells(model, streams):
                for numbers in _blocks(self._uncompared(cell, variant), streams):
                    examples = [items.item(cell.task, cell.length, n) for n in numbers]
                    prompts = [items.prompt_ids(example) for example in examples]
                    found = diverge(reference, candidate, prompts)
                    self.results.add(
                        Apart(
                            cell=cell,
                            variant=variant.name,
                            number=number,
                            num_tokens=each.num_tokens,
                            total_nats=each.total_nats,
                            most_nats=each.most_nats,
                            num_same=each.num_same,
                        )
                        for number, each in zip(numbers, found, strict=True)
                    )
                    self.heard.advance(len(numbers), f"{model} {variant.name}, KL")

    def _begin(self) -> None:
        num_steps = num_missing = 0
        for model in self.plan.models:
            for streams in self.plan.streams:
                for cell in self.plan.cells(model, streams):
                    for variant in self.plan.variants(model):
                        num_steps += self.plan.num_items
                        num_missing += len(self._unjudged(cell, variant))
                        if variant != RELEASED:
                            num_steps += self.plan.num_divergences
                            num_missing += len(self._uncompared(cell, variant))
        self.heard.begin(num_steps, num_steps - num_missing)

    def _unjudged(self, cell: Cell, variant: Variant) -> list[int]:
        known = self.results.verdicts(cell, variant.name)
        return [number for number in range(self.plan.num_items) if number not in known]

    def _uncompared(self, cell: Cell, variant: Variant) -> list[int]:
        known = self.results.apart(cell, variant.name)
        return [number for number in range(self.plan.num_divergences) if number not in known]


def _blocks(numbers: Sequence[int], size: int) -> Iterator[list[int]]:
    rest = iter(numbers)
    while block := list(islice(rest, size)):
        yield block
