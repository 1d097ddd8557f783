"""Items: held-out questions at the end of prompts of a given length.

An item is a function of its task, length, seed and number alone, so the same one is judged under
every format, and a longer run judges the items of a shorter one and more. Consecutive items share a
context (`contexts.py`), which an engine reads once. The items of every other context think.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tenantry_recipes.nano.responder import MAX_ANSWER_TOKENS
from tenantry_recipes.nano.splits import Split
from tenantry_recipes.nano.tasks.task import PERSONAS, Draw, Example
from tenantry_runtime.text import Prompt, TextModel

from .contexts import (
    BehindText,
    LookUps,
    MakeContext,
    Question,
    ToolsBehindText,
    by_context,
    questions_of,
)

LENGTHS = (512, 1024, 2048, 4096)
CONTEXT_TOKENS = 4096
"""Of the nano models; answers take their share of it."""
LEAST_SHARE = 0.7
"""Of a length that a prompt fills."""
_TRAINED_TOKENS = 1200
"""The models were trained on conversations of at most so many tokens, but for look-ups in texts."""
_MAX_TRIES = 1000
"""Of a loop that one try in six ends, at worst."""
_PARTS_KEPT = 1024
"""Of a few contexts and what is asked behind them: a few MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTask:
    """What is asked at the end."""

    make_context: MakeContext
    is_known_long: bool = False
    """Whether the models were trained on prompts of it that fill their context."""

    def fits(self, length: int) -> bool:
        """Tell whether the models know prompts of this length."""
        return self.is_known_long or length <= _TRAINED_TOKENS


JUDGED: Mapping[str, JudgedTask] = {
    "retrieval": JudgedTask(make_context=LookUps(is_several=False), is_known_long=True),
    "retrieval of several": JudgedTask(make_context=LookUps(is_several=True), is_known_long=True),
    "memory": JudgedTask(make_context=BehindText(task="memory")),
    "lists": JudgedTask(make_context=BehindText(task="lists")),
    "arithmetic": JudgedTask(make_context=BehindText(task="arithmetic")),
    "tools": JudgedTask(make_context=ToolsBehindText()),
}
"""By the name in reports."""


class Encoder:
    """A tokenizer that remembers what it read last: prompts that share a context share its text."""

    def __init__(self, text: TextModel) -> None:
        self._part_ids = lru_cache(maxsize=_PARTS_KEPT)(text.encode_part)

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the prompt's token ids, as the text model itself does."""
        return [token_id for part in prompt.parts for token_id in self._part_ids(part)]


class ItemSource:
    """Makes the items of one model, as its own tokenizer counts."""

    def __init__(self, *, text: TextModel, seed: int) -> None:
        self.text = text
        self.encoder = Encoder(text)
        self._seed = seed

    def items(self, name: str, length: int, numbers: Sequence[int]) -> dict[int, Example]:
        """Make items of a task by their numbers, each a conversation with one target."""
        found: dict[int, Example] = {}
        for number, members in by_context(length, numbers).items():
            examples = self.context(name, length, number)
            found |= {member: examples[member % len(examples)] for member in members}
        return found

    def context(self, name: str, length: int, number: int) -> tuple[Example, ...]:
        """Make all items of a context, no two alike."""
        # a prompt leaves room for the longest answer
        most = min(length, CONTEXT_TOKENS - MAX_ANSWER_TOKENS)
        seed = f"{name} {length} {self._seed} {number}"
        draw = self._draw(seed, most, thinking=number % 2 == 0)
        question = JUDGED[name].make_context(draw, self.prompt_tokens)
        asked: set[str] = set()
        examples = []
        for position in range(questions_of(length)):
            own = self._draw(f"{seed} {position}", most, thinking=draw.thinking)
            examples.append(self._fresh(own, question, asked))
        return tuple(examples)

    def prompt_ids(self, example: Example) -> list[int]:
        """Return the tokens before the answer, or of all messages where none is a target."""
        target = max(example.targets, default=len(example.messages))
        prompt = self.text.render(example.messages[:target], example.tools, example.options)
        return self.encoder.encode(prompt)

    def prompt_tokens(self, example: Example) -> int:
        return len(self.prompt_ids(example))

    def _draw(self, seed: str, max_tokens: int, *, thinking: bool | None) -> Draw:
        return Draw(
            rng=random.Random(f"formats {seed}"),
            max_tokens=max_tokens,
            split=Split.TEST,
            persona=PERSONAS[self.text.family],
            length=self.text.length,
            thinking=thinking,
        )

    def _fresh(self, draw: Draw, question: Question, asked: set[str]) -> Example:
        """Ask something of the right length that is not among what was asked, and add it there."""
        for _ in range(_MAX_TRIES):
            example = question(draw)
            (target,) = example.targets
            said = f"{example.messages[:target]}"
            fits = LEAST_SHARE * draw.max_tokens <= self.prompt_tokens(example) <= draw.max_tokens
            if fits and said not in asked:
                asked.add(said)
                return example
        raise AssertionError(f"no question of the right length in {_MAX_TRIES} tries")
