"""From tasks to rows: which tasks a phase mixes, and how conversations are packed into fixed lengths.

Row k of a stream is a function of the seed and k alone, so any worker can make it and a resumed run
goes on where it was.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from tenantry_runtime.core import Message
from tenantry_runtime.text import TextModel, training_ids
from tenantry_runtime.text.typescript import declare_tools

from .tasks import TASKS
from .tasks.task import KIMI, Draw, Example, Persona

TokenArray: TypeAlias = npt.NDArray[np.int64]
MaskArray: TypeAlias = npt.NDArray[np.bool_]

PAD_ID = 0
"""What fills a row's end, as a document without targets."""
_LEAST_TOKENS = 40
"""No conversation is shorter: less than this at a row's end is padding."""
_MAX_MISFITS = 4
"""Examples that turned out longer than the rest of the row before that rest is padding."""


_LETTERED = ("strings", "mixed", "gym")
"""Tasks whose answers are letters and numbers rather than words."""


class ExampleEncoder(Protocol):
    """A model's own template and vocabulary."""

    def encode(self, example: Example) -> tuple[Sequence[int], Sequence[bool]]:
        """Return the ids of a conversation, and for each whether the loss is on it."""
        ...

    def length(self, text: str) -> int:
        """Count the tokens of plain text."""
        ...


@dataclass(frozen=True, slots=True)
class TextEncoder:
    """The text layer of a checkpoint."""

    text: TextModel

    def encode(self, example: Example) -> tuple[Sequence[int], Sequence[bool]]:
        return training_ids(
            self.text,
            example.messages,
            example.tools,
            example.options,
            set(example.targets),
            example.spelled,
        )

    def length(self, text: str) -> int:
        return self.text.length(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How often a row draws from each task."""

    weights: Mapping[str, float]
    """By name, of the examples that share a row."""
    long_share: float = 0.0
    """Share of the rows that begin with one retrieval text as long as the row."""
    max_example_tokens: int = 512
    """Of every other example."""


SHORT_WEIGHTS: Mapping[str, float] = {
    "addition3": 10,
    "arithmetic": 12,
    "chain": 5,
    "facts": 1.5,
    "filling": 9,
    "gym": 26,
    "instructions": 11,
    "lists": 22,
    "memory": 5,
    "mixed": 3,
    "reasoning": 18,
    "retrieval": 13,
    "small_talk": 1.5,
    "strings": 28,
    "tools": 13,
}
"""More of what is learned last: letters, orders and what reasoning-gym asks."""

MIXTURES: Mapping[int, Mixture] = {
    512: Mixture(weights=SHORT_WEIGHTS),
    4096: Mixture(weights=SHORT_WEIGHTS, long_share=0.5, max_example_tokens=1200),
}
"""By tokens of a row; a chain of five calls needs more than 512."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """Whole conversations one after the other, then padding."""

    token_ids: TokenArray
    is_target: MaskArray
    starts: list[int]
    """Where documents begin, in order and from 0; positions restart and attention stops there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """An endless stream of rows."""

    encoder: ExampleEncoder
    mixture: Mixture
    row_tokens: int
    seed: int
    persona: Persona = KIMI

    def row(self, number: int) -> PackedRow:
        """Make row `number`, from 0."""
        rng = random.Random(f"row {self.seed} {number}")
        ids: list[int] = []
        mask: list[bool] = []
        starts: list[int] = []
        misfits = 0
        is_long = rng.random() < self.mixture.long_share
        while self.row_tokens - len(ids) >= _LEAST_TOKENS and misfits < _MAX_MISFITS:
            room = self.row_tokens - len(ids)
            example = self._example(rng, room, is_long=is_long and not starts)
            example_ids, example_mask = self.encoder.encode(example)
            if len(example_ids) > room:
                misfits += 1
                continue
            starts.append(len(ids))
            ids += example_ids
            mask += example_mask
        return _padded(ids, mask, starts, self.row_tokens)

    def _example(self, rng: random.Random, room: int, *, is_long: bool) -> Example:
        # what a template adds around a conversation is not in the tasks' estimates
        most = room * 15 // 16 if is_long else min(room, self.mixture.max_example_tokens)
        draw = Draw(rng=rng, max_tokens=most, persona=self.persona, length=self.encoder.length)
        weights = self.mixture.weights
        name = "retrieval" if is_long else rng.choices(list(weights), list(weights.values()))[0]
        return TASKS[name].generate(draw)


def corpus(seed: int, count: int, persona: Persona = KIMI) -> Iterator[str]:
    """Yield plain texts of `count` examples, for building a vocabulary.

    What should stay in small pieces is left out: random letters, and words that an answer reversed,
    raised or spelled.
    """
    names, weights = list(SHORT_WEIGHTS), list(SHORT_WEIGHTS.values())
    for number in range(count):
        rng = random.Random(f"corpus {seed} {number}")
        draw = Draw(rng=rng, max_tokens=512, persona=persona, has_random_letters=False)
        example = TASKS[rng.choices(names, weights)[0]].generate(draw)
        yield "\n".join(_texts(example))


def _texts(example: Example) -> Iterator[str]:
    if example.tools:
        yield declare_tools(example.tools)
    for tool in example.tools:
        yield json.dumps(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        )
    for message in example.messages:
        yield from _message_texts(message, is_lettered=example.task in _LETTERED)


def _message_texts(message: Message, *, is_lettered: bool) -> Iterator[str]:
    yield message.role
    if message.reasoning is not None:
        yield message.reasoning
    if not (is_lettered and message.role == "assistant"):
        yield message.content
    for call in message.tool_calls:
        yield call.id
        yield call.arguments


def _padded(ids: list[int], mask: list[bool], starts: list[int], length: int) -> PackedRow:
    missing = length - len(ids)
    if missing:
        starts = [*starts, len(ids)]
    return PackedRow(
        token_ids=np.array(ids + [PAD_ID] * missing, dtype=np.int64),
        is_target=np.array(mask + [False] * missing, dtype=np.bool_),
        starts=starts,
    )
