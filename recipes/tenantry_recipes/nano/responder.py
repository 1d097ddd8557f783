"""What evaluation asks of a model, and what a model answers, whatever lies between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tenantry_runtime.core import Message, RenderOptions, Tool, ToolCall

MAX_ANSWER_TOKENS = 440
"""The longest right answer, a list of five sums worked out digit by digit, has some 410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model made of one prompt."""

    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One prompt."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    options: RenderOptions


class Responder(Protocol):
    """A model behind any interface."""

    def respond(self, asks: Sequence[Ask]) -> list[Answer]:
        """Answer each prompt by itself, greedily, in at most `MAX_ANSWER_TOKENS` tokens."""
        ...


Generate: TypeAlias = Callable[[Sequence[Message], Sequence[Tool], RenderOptions], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneByOne:
    """A responder made of a function that answers one prompt."""

    generate: Generate

    def respond(self, asks: Sequence[Ask]) -> list[Answer]:
        return [self.generate(ask.messages, ask.tools, ask.options) for ask in asks]
