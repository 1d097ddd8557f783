"""A stand-in for a model's text layer, and draws for tasks, without a checkpoint."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from tenantry_recipes.nano.responder import Answer, Ask
from tenantry_recipes.nano.splits import Split
from tenantry_recipes.nano.tasks import TASKS
from tenantry_recipes.nano.tasks.task import Draw, Example
from tenantry_runtime.core import Message

LONG_TOKENS = 4000
"""What the hard form of retrieval needs."""


def a_draw(
    seed: object = 0,
    *,
    max_tokens: int = 512,
    split: Split = Split.TRAIN,
    thinking: bool | None = None,
) -> Draw:
    return Draw(rng=random.Random(f"{seed}"), max_tokens=max_tokens, split=split, thinking=thinking)


def some_examples(
    name: str, count: int, *, split: Split = Split.TRAIN, thinking: bool | None = None
) -> list[Example]:
    """Make examples of a task at its usual length."""
    most = LONG_TOKENS if name == "retrieval_hard" else 512
    return [
        TASKS[name].generate(
            a_draw(f"{name} {number}", max_tokens=most, split=split, thinking=thinking)
        )
        for number in range(count)
    ]


class WordEncoder:
    """One token per word, digit or sign; every message opens with a token of its role."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def encode(self, example: Example) -> tuple[Sequence[int], Sequence[bool]]:
        ids: list[int] = [self._id(word) for tool in example.tools for word in _words(tool.name)]
        mask = [False] * len(ids)
        for index, message in enumerate(example.messages):
            ids.append(self._id(f"<{message.role}>"))
            mask.append(False)
            spoken = [self._id(word) for word in _words(_text(message))]
            ids += spoken
            mask += [index in example.targets] * len(spoken)
        return ids, mask

    def length(self, text: str) -> int:
        return len(_words(text))

    def words(self, ids: Sequence[int]) -> list[str]:
        names = list(self._ids)
        return [names[token_id] for token_id in ids]

    def _id(self, word: str) -> int:
        return self._ids.setdefault(word, len(self._ids))


class Oracle:
    """A responder that knows the examples and answers as they do, except where told otherwise."""

    def __init__(self, examples: Sequence[Example], wrong: Sequence[str] = ()) -> None:
        """`wrong`: contents, or names of called tools, that it gets wrong."""
        self.asked: list[Ask] = []
        self._wrong = set(wrong)
        self._answers = {
            _seen(example.messages[:target]): example.messages[target]
            for example in examples
            for target in example.targets
        }

    def respond(self, asks: Sequence[Ask]) -> list[Answer]:
        self.asked += asks
        return [self._answer(self._answers[_seen(ask.messages)]) for ask in asks]

    def _answer(self, message: Message) -> Answer:
        said = {message.content, *(call.name for call in message.tool_calls)}
        if said & self._wrong:
            return Answer(content="no idea")
        return Answer(
            content=message.content,
            reasoning=message.reasoning or "",
            tool_calls=message.tool_calls,
        )


def _seen(messages: Sequence[Message]) -> str:
    return json.dumps([[message.role, _text(message)] for message in messages])


def _text(message: Message) -> str:
    calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return " ".join([message.reasoning or "", message.content, *calls])


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+|\d|[^\sA-Za-z\d]", text)
