"""What a conversation becomes before it is token ids: text and control tokens, never mixed up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class OutputState(StrEnum):
    """Where in an answer the model is. The rendered prompt decides where it begins."""

    REASONING = "reasoning"
    """Thinking, before the closing tag."""
    CONTENT = "content"
    """The answer itself."""
    TOOL_SECTION = "tool_section"
    """Inside a section of calls (Kimi), before, between or after them; text here has no meaning."""
    TOOL_NAME = "tool_name"
    """The name of a call, or Kimi's id that contains it."""
    TOOL_ARGUMENTS = "tool_arguments"
    """Kimi: the JSON text. GLM: between the pairs of key and value."""
    TOOL_KEY = "tool_key"
    """GLM: an argument's name."""
    TOOL_VALUE = "tool_value"
    """GLM: an argument's value."""
    TOOL_BETWEEN = "tool_between"
    """After a call or a section of calls: white space is dropped, other text is content again."""


@dataclass(frozen=True, slots=True)
class Text:
    """Ordinary text; special-token strings in it are characters like any other."""

    text: str


@dataclass(frozen=True, slots=True)
class Control:
    """One control token."""

    id: int


Part: TypeAlias = Text | Control


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. Two `Text`s are never neighbors: each is tokenized on its own."""

    parts: tuple[Part, ...]
    initial: OutputState
    """The state in which the model takes over."""
