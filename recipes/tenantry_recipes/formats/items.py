"""Items: held-out questions at the end of a prompt of a given length.

An item is a function of its task, length, seed and number alone, so the same one is judged under
every format, and a longer run judges the items of a shorter one and more. Half of them think.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from tenantry_recipes.nano.responder import MAX_ANSWER_TOKENS
from tenantry_recipes.nano.splits import Split
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.filler import filler_sentence
from tenantry_recipes.nano.tasks.task import PERSONAS, Check, Draw, Example, Mentions
from tenantry_runtime.core import Message
from tenantry_runtime.text import TextModel

LENGTHS = (512, 1024, 2048, 4096)
CONTEXT_TOKENS = 4096
"""Of the nano models; answers take their share of it."""
LEAST_SHARE = 0.8
"""Of a length that a prompt fills."""
_QUESTION_TOKENS = 240
"""Of what is asked behind a text, so that it fits the shortest length with some text before it."""
_TRAINED_TOKENS = 1200
"""The models were trained on conversations of at most so many tokens, but for look-ups in texts."""
_FRAME_TOKENS = 24
"""What a template puts around a system message, at most."""
_MAX_TRIES = 1000
"""Of a loop that one try in six ends, at worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTask:
    """What is asked at the end."""

    task: str
    """Among the tasks that the models were trained on."""
    num_values: range | None = None
    """Values that a look-up is for; None: no look-up, what is asked follows a text that says nothing of it."""

    def fits(self, length: int) -> bool:
        """Tell whether the models know conversations of this length."""
        return self.num_values is not None or length <= _TRAINED_TOKENS


JUDGED: Mapping[str, JudgedTask] = {
    "retrieval": JudgedTask(task="retrieval", num_values=range(1, 2)),
    "retrieval of several": JudgedTask(task="retrieval", num_values=range(2, 7)),
    "memory": JudgedTask(task="memory"),
    "lists": JudgedTask(task="lists"),
    "arithmetic": JudgedTask(task="arithmetic"),
    "tools": JudgedTask(task="tools"),
}
"""By the name in reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSource:
    """Makes the items of one model, as its own tokenizer counts."""

    text: TextModel
    seed: int

    def item(self, name: str, length: int, number: int) -> Example:
        """Make item `number` of a task, a conversation with one target."""
        judged = JUDGED[name]
        # a prompt leaves room for the longest answer
        most = min(length, CONTEXT_TOKENS - MAX_ANSWER_TOKENS)
        rng = random.Random(f"formats {name} {length} {self.seed} {number}")
        is_lookup = judged.num_values is not None
        draw = Draw(
            rng=rng,
            max_tokens=most * 15 // 16 if is_lookup else _QUESTION_TOKENS,
            split=Split.TEST,
            persona=PERSONAS[self.text.family],
            length=self.text.length,
            thinking=number % 2 == 0,
        )
        for _ in range(_MAX_TRIES):
            example = _with_last_target(TASKS[judged.task].generate(draw))
            if not is_lookup:
                example = self._behind_text(draw, example, most)
            elif not _asks_for(example, judged.num_values):
                continue
            if LEAST_SHARE * most <= self.prompt_tokens(example) <= most:
                return example
        raise AssertionError(f"no item of {name} with {length} tokens in {_MAX_TRIES} tries")

    def prompt_ids(self, example: Example) -> list[int]:
        """Return the tokens before the answer."""
        (target,) = example.targets
        prompt = self.text.render(example.messages[:target], example.tools, example.options)
        return self.text.encode(prompt)

    def prompt_tokens(self, example: Example) -> int:
        return len(self.prompt_ids(example))

    def _behind_text(self, draw: Draw, example: Example, most: int) -> Example:
        room = most - self.prompt_tokens(example) - _FRAME_TOKENS
        sentences: list[str] = []
        while room > 0:
            sentences.append(filler_sentence(draw))
            room -= self.text.length(sentences[-1]) + 1
        # the last one did not fit
        said = " ".join(sentences[:-1])
        first, *others = example.messages
        if first.role == "system":
            first = structs.replace(first, content=f"{said}\n\n{first.content}")
            return replace(example, messages=(first, *others))
        system = Message(role="system", content=said)
        return replace(
            example,
            messages=(system, *example.messages),
            checks={target + 1: check for target, check in example.checks.items()},
        )


def _with_last_target(example: Example) -> Example:
    last = max(example.targets)
    return replace(example, checks={last: example.checks[last]})


def _asks_for(example: Example, num_values: range | None) -> bool:
    check: Check
    (check,) = example.checks.values()
    return isinstance(check, Mentions) and len(check.values) in (num_values or ())
