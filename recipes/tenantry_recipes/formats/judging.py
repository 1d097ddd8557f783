"""Judges every item of a plan that was not judged before.

A block of items is judged under all variants and numbers of streams before the next one, each block
of another cell: what a block took says what the rest takes, and a run that was cut has whole pairs.
Every variant keeps one engine, so the contexts of a block are read once for all its streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from tenantry_recipes.nano.evaluate import Trial
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_recipes.nano.responder import Answer, Ask
from tenantry_recipes.nano.scoring import is_right
from tenantry_recipes.nano.serving import EngineResponder
from tenantry_recipes.nano.tasks.task import Check, Example
from tenantry_runtime.models.checkpoint import Checkpoint
from tenantry_runtime.text import load_text

from .contexts import LONG_QUESTIONS, QUESTIONS, by_context
from .divergence import Side, diverge
from .items import JUDGED, ItemSource
from .results import Apart, Cell, Results, Subject, Verdict
from .variants import BLOCK_CONTEXTS, RELEASED, Comparison, Variant, comparisons_of, load_variant

BLOCK_ITEMS = BLOCK_CONTEXTS * QUESTIONS
_COMPARED_ITEMS = LONG_QUESTIONS
"""Whose distributions are compared at a time, however many streams there are."""
COMPARED_STEPS = 4
"""Of progress for the comparison of an item's distributions: two variants, neither in an engine."""


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

    def streams_of(self, comparison: Comparison) -> tuple[int, ...]:
        """Return at how many streams it is made: of controls, which are about the items, at the most."""
        return (max(self.streams),) if comparison.is_control else self.streams

    def variants(self, model: str, streams: int | None = None) -> list[Variant]:
        """Return a model's variants, the released one first; those judged at so many streams, or all."""
        compared = [
            each
            for each in self.comparisons()
            if each.model == model and (streams is None or streams in self.streams_of(each))
        ]
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


class FormatResponder(Protocol):
    """A variant's engine."""

    def respond(self, asks: Sequence[Ask], *, streams: int) -> list[Answer]:
        """Answer each prompt by itself, greedily, in order and at most `streams` at a time."""
        ...


class Heard(Protocol):
    """Who hears how it goes."""

    def begin(self, num_steps: int, num_done: int) -> None:
        """So many steps, of about the same work, are to do in all, of which so many were done before."""
        ...

    def advance(self, num_steps: int, what: str) -> None:
        """Learn that so many more are done."""
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
                Subject(model=model, seed=self.plan.seed, revision=revision, questions=QUESTIONS)
            )
        self._begin()
        for model in self.plan.models:
            items = ItemSource(text=load_text(checkpoint_directory(model)), seed=self.plan.seed)
            self._judge_model(model, items)
            for variant in self.plan.variants(model):
                if variant != RELEASED:
                    self._compare_variant(model, variant, items)

    def _judge_model(self, model: str, items: ItemSource) -> None:
        with ExitStack() as engines:
            responders = {
                variant: engines.enter_context(self._responder(model, variant, items))
                for variant in self.plan.variants(model)
                if any(self._unjudged(cell, variant) for cell in self._cells(model, variant))
            }
            for numbers in _blocks(range(self.plan.num_items), BLOCK_ITEMS):
                for cells in self._cells_by_place(model):
                    self.judge_block(responders, cells, numbers, items)

    def _responder(self, model: str, variant: Variant, items: ItemSource) -> EngineResponder:
        threads = self.plan.threads
        loaded = load_variant(model, variant, work=self.work, threads=threads)
        return loaded.responder(
            streams=max(self.plan.streams), threads=threads, encode=items.encoder.encode
        )

    def judge_block(
        self,
        responders: Mapping[Variant, FormatResponder],
        cells: Sequence[Cell],
        numbers: Sequence[int],
        items: ItemSource,
    ) -> None:
        """Judge the same items in cells that differ by their streams, the fewest first."""
        block = set(numbers)
        missing = [
            (variant, responder, cell, block.intersection(self._unjudged(cell, variant)))
            for variant, responder in responders.items()
            for cell in cells
            if variant in self.plan.variants(cell.model, cell.streams)
        ]
        wanted = set[int]().union(*(each for *_, each in missing))
        if not wanted:
            return
        examples = items.items(cells[0].task, cells[0].length, sorted(wanted))
        for variant, responder, cell, unjudged in missing:
            if unjudged:
                asked = {number: examples[number] for number in unjudged}
                self._judge_cell(responder, cell, variant, asked)

    def _judge_cell(
        self,
        responder: FormatResponder,
        cell: Cell,
        variant: Variant,
        examples: Mapping[int, Example],
    ) -> None:
        """Have a variant answer items of a cell."""
        order = asking_order(cell.length, examples)
        asks = [Trial(examples[number]).ask(max(examples[number].targets)) for number in order]
        answers = responder.respond(asks, streams=cell.streams)
        self.results.add(
            Verdict(
                cell=cell,
                variant=variant.name,
                number=number,
                is_right=is_right(_check(examples[number]), answer),
            )
            for number, answer in zip(order, answers, strict=True)
        )
        self.heard.advance(len(order), f"{cell.model} {variant.name}")

    def _compare_variant(self, model: str, variant: Variant, items: ItemSource) -> None:
        cells = self._cells(model, variant)
        if not any(self._uncompared(cell, variant) for cell in cells):
            return
        both = [
            load_variant(model, each, work=self.work, threads=self.plan.threads)
            for each in (RELEASED, variant)
        ]
        places = min(max(self.plan.streams), _COMPARED_ITEMS) + _COMPARED_ITEMS // QUESTIONS
        reference, candidate = (Side.of(each, places=places) for each in both)
        for cell in cells:
            for numbers in _blocks(self._uncompared(cell, variant), _COMPARED_ITEMS):
                self._compare_block(reference, candidate, cell, variant, numbers, items)

    def _compare_block(
        self,
        reference: Side,
        candidate: Side,
        cell: Cell,
        variant: Variant,
        numbers: Sequence[int],
        items: ItemSource,
    ) -> None:
        examples = items.items(cell.task, cell.length, numbers)
        contexts = [
            [items.prompt_ids(examples[number]) for number in members]
            for members in by_context(cell.length, numbers).values()
        ]
        streams = min(cell.streams, _COMPARED_ITEMS)
        found = diverge(reference, candidate, contexts, streams=streams)
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
        self.heard.advance(COMPARED_STEPS * len(numbers), f"{cell.model} {variant.name}, KL")

    def _begin(self) -> None:
        num_steps = num_missing = 0
        for model in self.plan.models:
            for variant in self.plan.variants(model):
                for cell in self._cells(model, variant):
                    num_steps += self.plan.num_items
                    num_missing += len(self._unjudged(cell, variant))
                    if variant != RELEASED:
                        num_steps += COMPARED_STEPS * self.plan.num_divergences
                        num_missing += COMPARED_STEPS * len(self._uncompared(cell, variant))
        self.heard.begin(num_steps, num_steps - num_missing)

    def _cells(self, model: str, variant: Variant) -> list[Cell]:
        """Return where a variant is judged."""
        return [
            cell
            for streams in sorted(self.plan.streams)
            if variant in self.plan.variants(model, streams)
            for cell in self.plan.cells(model, streams)
        ]

    def _cells_by_place(self, model: str) -> list[tuple[Cell, ...]]:
        """Return a model's cells, those together that differ by their streams."""
        each_streams = (self.plan.cells(model, streams) for streams in sorted(self.plan.streams))
        return list(zip(*each_streams, strict=True))

    def _unjudged(self, cell: Cell, variant: Variant) -> list[int]:
        known = self.results.verdicts(cell, variant.name)
        return [number for number in range(self.plan.num_items) if number not in known]

    def _uncompared(self, cell: Cell, variant: Variant) -> list[int]:
        known = self.results.apart(cell, variant.name)
        return [number for number in range(self.plan.num_divergences) if number not in known]


def asking_order(length: int, numbers: Iterable[int]) -> list[int]:
    """Put one item of each context first, then the others context by context.

    So the first fills the prefix tree before the others look there: items that are admitted into one
    step do not see each other's pages.
    """
    contexts = by_context(length, numbers).values()
    firsts = [members[0] for members in contexts]
    return firsts + [number for members in contexts for number in members[1:]]


def _check(example: Example) -> Check:
    (check,) = example.checks.values()
    return check


def _blocks(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    rest = iter(numbers)
    while block := list(islice(rest, size)):
        yield block
