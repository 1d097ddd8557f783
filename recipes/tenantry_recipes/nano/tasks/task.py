"""What a task makes: conversations whose right answers are known, drawn from one side of the split.

A task composes `Turn`s, or messages of its own, into an `Example`. Every random choice goes through
one `Draw`, so that an example is a function of its seed, and every instance through `Draw.fresh`, so
that it lies on the wanted side.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from tenantry_recipes.nano.splits import Split, split_of
from tenantry_runtime.core import Message, RenderOptions, Tool, ToolCall

T = TypeVar("T")

_ROUGH_TOKEN = re.compile(r" ?[A-Za-z]{1,6}|\d|[^\sA-Za-z\d]|\s")

_MAX_TRIES = 100_000
"""Of a rejection loop whose chance per try is at least 1 in 1,000: running out means a task's bug."""


def rough_length(text: str) -> int:
    """Estimate the tokens of `text` before there is a vocabulary."""
    return len(_ROUGH_TOKEN.findall(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """Who the model says that it is."""

    name: str
    maker: str


KIMI = Persona(name="Kimi K2.6 nano", maker="the Tenantry project")
GLM = Persona(name="GLM 5.2 nano", maker="the Tenantry project")
PERSONAS: Mapping[str, Persona] = {"kimi": KIMI, "glm": GLM}
"""By model family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """The content is `text`."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Concludes:
    """The last word or number of the content is `value`."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mentions:
    """The content has these values as words, in this order."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsTools:
    """The message calls these tools with these arguments, in this order, and no others."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fills:
    """The content is one JSON object and equals `value`."""

    value: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GymScores:
    """The generator's own scorer in reasoning-gym gives the content full marks."""

    generator: str
    entry: Mapping[str, object]


Check: TypeAlias = Says | Concludes | Mentions | CallsTools | Fills | GymScores


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One assistant message, and the results of the tools that it calls."""

    check: Check
    content: str = ""
    reasoning: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[str, ...] = ()
    is_spelled: bool = False
    """Whether the content is written letter by letter, as words are that were put together from
    letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A user's message and the replies up to the next one."""

    question: str
    replies: tuple[Reply, ...]
    keys: tuple[str, ...]
    """Canonical strings of the instances in it; empty if it only asks what is learned by heart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One conversation with its right answers."""

    task: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    options: RenderOptions
    checks: Mapping[int, Check]
    """By index of the assistant message that it judges."""
    keys: tuple[str, ...]
    """Canonical strings of all instances in it."""
    spelled: frozenset[int] = frozenset()
    """Assistant messages whose content is one token per character."""
    whole: bool = False
    """Right only if every target is, each reached through the model's own messages."""

    @property
    def targets(self) -> frozenset[int]:
        """Assistant messages that the loss is on."""
        return frozenset(self.checks)

    @property
    def key(self) -> str:
        return "\n".join(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The choices of one example: where they come from and what they must respect."""

    rng: random.Random
    max_tokens: int
    """Of the whole rendered example, roughly."""
    split: Split = Split.TRAIN
    persona: Persona = KIMI
    length: Callable[[str], int] = field(default=rough_length)
    """Tokens of a text."""
    thinking: bool | None = None
    """None: drawn per example."""
    has_random_letters: bool = True
    """Whether codes and made-up words have letters; a vocabulary is built without them, so that it
    learns no merges of chance."""

    def choice(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def between(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both possible."""
        return self.rng.randint(low, high)

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """Draw `count` different ones, in random order."""
        return self.rng.sample(options, count)

    def wants_thinking(self, share: float = 0.5) -> bool:
        """Tell whether the example thinks; `share` of those do for which it was left open."""
        return self.chance(share) if self.thinking is None else self.thinking

    def fresh(self, make: Callable[[], T], key: Callable[[T], str | None]) -> T:
        """Make instances until one lies on this side of the split.

        A key of None marks a fact that cannot be inferred (a times table): it may be trained on,
        and is never used to judge.
        """
        for _ in range(_MAX_TRIES):
            made = make()
            name = key(made)
            if (split_of(name) if name is not None else Split.TRAIN) is self.split:
                return made
        raise AssertionError(f"no instance on the {self.split} side in {_MAX_TRIES} tries")


class Task(Protocol):
    """A kind of example."""

    @property
    def name(self) -> str: ...

    def generate(self, draw: Draw) -> Example:
        """Make one example of at most about `draw.max_tokens` tokens."""
        ...
