"""The words in which a family describes its answers to the output machine.

A family gives three things: which control tokens mean something (`Terminal`), what each does in
which state (`Rules`), and how calls are written (`CallWriter`). The machine itself knows no family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tenantry_runtime.core import OutputEvent

from .prompt import OutputState


class Terminal(StrEnum):
    """What a control token means, whatever its string."""

    THINK_OPEN = "think_open"
    THINK_CLOSE = "think_close"
    SECTION_OPEN = "section_open"
    SECTION_CLOSE = "section_close"
    CALL_OPEN = "call_open"
    CALL_CLOSE = "call_close"
    ARGUMENTS_OPEN = "arguments_open"
    KEY_OPEN = "key_open"
    KEY_CLOSE = "key_close"
    VALUE_OPEN = "value_open"
    VALUE_CLOSE = "value_close"


class Action(StrEnum):
    """What happens to the call at hand."""

    BEGIN = "begin"
    """A new call; its name follows."""
    START = "start"
    """The name is whole."""
    KEY = "key"
    """An argument's name follows."""
    OPEN_VALUE = "open_value"
    """An argument's value follows."""
    CLOSE_VALUE = "close_value"
    """The value is whole."""
    CLOSE = "close"
    """The call is complete."""


class Rule(NamedTuple):
    """What a terminal does in a state."""

    to: OutputState
    actions: tuple[Action, ...] = ()


Rules: TypeAlias = Mapping[tuple[OutputState, Terminal], Rule]
"""A terminal without a rule for the state is dropped."""


class CallWriter(ABC):
    """Turns the inside of tool calls into events. One per answer.

    Calls get indices from 0 in order. A call is closed when something follows it, so that only the
    last one can be open.
    """

    num_complete = 0
    """Calls that are closed, with the JSON text of an object as their arguments."""

    @abstractmethod
    def act(self, action: Action) -> list[OutputEvent]:
        """Follow a rule's action."""

    @abstractmethod
    def take(self, state: OutputState, text: str) -> list[OutputEvent]:
        """Take text that stands in one of the states inside a call."""

    @abstractmethod
    def finish(self, state: OutputState) -> list[OutputEvent]:
        """Close the call at hand if the model ended its turn right after all of its arguments."""
