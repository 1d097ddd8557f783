"""Kimi's tool calls: an id that contains the name, then the arguments as JSON text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from tenantry_runtime.core import Message, OutputEvent, Tool, ToolCallArguments, ToolCallStart

from .output import Action, CallWriter
from .prompt import OutputState

PREFIX = "functions."

# nine digits are more calls than a context holds; a longer number is part of a name
_ID = re.compile(r"(?P<name>.*?)(?::(?P<number>[0-9]{1,9}))?", re.DOTALL)
_BARE_NUMBER = re.compile(r"[0-9]{1,9}")

# JSON's; what else Python takes for white space is no JSON at all
_WHITE_SPACE = " \t\n\r"


class KimiCallWriter(CallWriter):
    """Streams arguments as they come.

    The model's ids count over the whole conversation, so they are kept; one that an earlier call has,
    of this answer or of a message before it, is counted on. A call whose id is a bare number is held
    back until its arguments tell which tool is meant.
    """

    def __init__(self, tools: Sequence[Tool], messages: Sequence[Message] = ()) -> None:
        self._tools = tools
        # what the client calls them; the prompt has the same calls by their number
        self._earlier = {call.id for message in messages for call in message.tool_calls}
        self._head = ""
        self._arguments = ""
        self._index: int | None = None
        self._num_started = 0
        self._used = set(range(sum(len(message.tool_calls) for message in messages)))

    def act(self, action: Action) -> list[OutputEvent]:
        match action:
            case Action.BEGIN:
                self._head = self._arguments = ""
                self._index = None
                return []
            case Action.START:
                name, _ = self._parsed()
                return self._start(name) if name else []
            case Action.CLOSE:
                return self._close()
            case _:
                raise AssertionError(f"no rule of this family has {action}")

    def take(self, state: OutputState, text: str) -> list[OutputEvent]:
        if state is OutputState.TOOL_NAME:
            self._head += text
            return []
        self._arguments += text
        return [ToolCallArguments(self._index, text)] if self._index is not None else []

    def finish(self, state: OutputState) -> list[OutputEvent]:
        if state is OutputState.TOOL_ARGUMENTS and _parse_object(self._arguments) is not None:
            return self._close()
        return []

    def _start(self, name: str) -> list[OutputEvent]:
        _, number = self._parsed()
        if number is None or number in self._used:
            number = max(self._used, default=-1) + 1
        while number in self._used or f"{PREFIX}{name}:{number}" in self._earlier:
            number += 1
        self._used.add(number)
        self._index = self._num_started
        self._num_started += 1
        return [ToolCallStart(self._index, f"{PREFIX}{name}:{number}", name)]

    def _close(self) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        if self._index is None:
            name = self._inferred_name()
            if name is None:
                return []
            events = self._start(name)
            unsaid = self._arguments
        else:
            unsaid = ""
        is_empty = not self._arguments.strip(_WHITE_SPACE)
        if is_empty:
            unsaid = "{}"
        if unsaid and self._index is not None:
            events.append(ToolCallArguments(self._index, unsaid))
        if is_empty or _parse_object(self._arguments) is not None:
            self.num_complete += 1
        self._index = None
        return events

    def _parsed(self) -> tuple[str, int | None]:
        """Return the name ("" where there is none) and the number of the id."""
        head = self._head.strip()
        if _BARE_NUMBER.fullmatch(head):
            return "", int(head)
        found = _ID.fullmatch(head.removeprefix(PREFIX))
        assert found is not None, "the pattern matches everything"
        number = found["number"]
        return found["name"], int(number) if number else None

    def _inferred_name(self) -> str | None:
        """Find the one tool that could take these arguments."""
        arguments = _parse_object(self._arguments.strip(_WHITE_SPACE) or "{}")
        if arguments is None:
            return None
        fitting = [tool for tool in self._tools if _could_take(tool, arguments)]
        candidates = self._tools if len(self._tools) == 1 else fitting
        return candidates[0].name if len(candidates) == 1 else None


def _could_take(tool: Tool, arguments: Mapping[str, object]) -> bool:
    declared = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    return (
        isinstance(declared, dict)
        and arguments.keys() <= declared.keys()
        and all(name in arguments for name in (required if isinstance(required, list) else ()))
    )


def _parse_object(text: str) -> dict[str, object] | None:
    # as strict as the edge is when the call comes back: no NaN, no number beyond a double
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return None
