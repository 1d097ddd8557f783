"""GLM's tool calls: a name, then pairs of key and raw value, which become one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from tenantry_runtime.core import OutputEvent, Tool, ToolCallArguments, ToolCallStart

from .output import Action, CallWriter
from .prompt import OutputState
from .schema_types import argument_types, type_of


class _Mode(StrEnum):
    STRING = "string"
    """Streamed, character by character."""
    STRING_OR_NULL = "string_or_null"
    """Held while it could still become `null`."""
    JSON = "json"
    """Held until it is whole."""
    IGNORED = "ignored"
    """A value without a key."""


class GlmCallWriter(CallWriter):
    """Streams strings as JSON text, in pieces that no later token changes; holds other values.

    A value that the schema does not describe is a string.
    """

    def __init__(self, tools: Sequence[Tool], new_id: Callable[[], str]) -> None:
        self._parameters = {tool.name: tool.parameters for tool in tools}
        self._new_id = new_id
        self._name = ""
        self._index: int | None = None
        self._num_started = 0
        self._has_arguments = False
        self._key: str | None = None
        self._mode = _Mode.IGNORED
        self._types: frozenset[str] = frozenset()
        self._held = ""

    def act(self, action: Action) -> list[OutputEvent]:
        match action:
            case Action.BEGIN:
                self._name = ""
                self._index = self._key = None
                self._has_arguments = False
                return []
            case Action.START:
                return self._start()
            case Action.KEY:
                self._key = ""
                return []
            case Action.OPEN_VALUE:
                return self._open_value()
            case Action.CLOSE_VALUE:
                return self._close_value()
            case Action.CLOSE:
                return self._close()

    def take(self, state: OutputState, text: str) -> list[OutputEvent]:
        match state:
            case OutputState.TOOL_NAME:
                self._name += text
            case OutputState.TOOL_KEY if self._key is not None:
                self._key += text
            case OutputState.TOOL_VALUE:
                return self._take_value(text)
            case _:
                pass  # white space between the pairs
        return []

    def finish(self, state: OutputState) -> list[OutputEvent]:
        is_whole = state is OutputState.TOOL_ARGUMENTS and self._key is None
        return self._close() if is_whole else []

    def _start(self) -> list[OutputEvent]:
        self._name = self._name.strip()
        if not self._name:
            return []
        self._index = self._num_started
        self._num_started += 1
        return [ToolCallStart(self._index, self._new_id(), self._name)]

    def _close(self) -> list[OutputEvent]:
        if self._index is None:
            return []
        events = self._arguments("}" if self._has_arguments else "{}")
        self.num_complete += 1
        self._index = None
        return events

    def _open_value(self) -> list[OutputEvent]:
        if self._key is None:
            self._mode = _Mode.IGNORED
            return []
        key = self._key.strip()
        self._key = None
        self._held = ""
        self._types = argument_types(self._parameters.get(self._name, {}), key) or frozenset(
            {"string"}
        )
        lead = ", " if self._has_arguments else "{"
        self._has_arguments = True
        opening = f"{lead}{_quoted(key)}: "
        if self._types == {"string"}:
            self._mode = _Mode.STRING
            return self._arguments(opening + '"')
        self._mode = _Mode.STRING_OR_NULL if self._types == {"string", "null"} else _Mode.JSON
        return self._arguments(opening)

    def _take_value(self, text: str) -> list[OutputEvent]:
        match self._mode:
            case _Mode.STRING:
                return self._arguments(_quoted(text)[1:-1])
            case _Mode.STRING_OR_NULL:
                self._held += text
                if "null".startswith(self._held):
                    return []
                self._mode = _Mode.STRING
                return self._arguments(_quoted(self._held)[:-1])
            case _Mode.JSON:
                self._held += text
        return []

    def _close_value(self) -> list[OutputEvent]:
        match self._mode:
            case _Mode.STRING:
                return self._arguments('"')
            case _Mode.STRING_OR_NULL | _Mode.JSON:
                return self._arguments(_as_json(self._held, self._types))
            case _Mode.IGNORED:
                return []

    def _arguments(self, text: str) -> list[OutputEvent]:
        return [ToolCallArguments(self._index, text)] if self._index is not None else []


def _as_json(raw: str, types: frozenset[str]) -> str:
    """Return the JSON text of a raw value: itself where it is JSON of a fitting type, else a string.

    JSON stays as the model wrote it, so that no digit of a number is lost.
    """
    try:
        # as strict as the edge is when the call comes back: no NaN, no number beyond a double
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _quoted(raw)
    found = type_of(value)
    fits = found in types or (found == "integer" and "number" in types)
    # what fits nothing is the model's mistake and stays visible, unless it could be meant as text
    return raw.strip() if fits or "string" not in types else _quoted(raw)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
