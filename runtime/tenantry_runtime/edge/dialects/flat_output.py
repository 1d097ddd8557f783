"""Answers as older models of Workers AI have them: `{"response": …}`.

A call is flat, its arguments an object. Where the request asks for JSON, `response` of a whole answer
is the value itself. A stream carries text as it comes, calls when they are complete, and usage last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tenantry_runtime.catalog import TokenPrices
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    GenerateRequest,
    JsonFormat,
    LogprobsDelta,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.edge import envelope
from tenantry_runtime.errors import TenantryError

from . import openai_errors
from .sse import DONE, sse
from .usage_output import UsageOutput, usage_output


class FlatCall(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    # Any: whatever the model has written; text where that is no JSON
    arguments: Any


class FlatResult(msgspec.Struct, frozen=True, kw_only=True):
    # Any: text, or the value where the request asks for JSON
    response: Any
    reasoning: str | UnsetType = UNSET
    tool_calls: list[FlatCall] | UnsetType = UNSET
    usage: UsageOutput


class ResponseChunk(msgspec.Struct, frozen=True, kw_only=True):
    response: str = ""
    reasoning: str | UnsetType = UNSET
    tool_calls: list[FlatCall] | UnsetType = UNSET
    usage: UsageOutput | UnsetType = UNSET


class FlatPrinter:
    """Prints the one answer to a request. A `Printer`."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        prices: TokenPrices | None = None,
    ) -> None:
        self.response_id = response_id
        self._prices = prices
        self._include_usage = request.include_usage
        self._is_json = isinstance(request.response_format, JsonFormat)
        self._name: str | None = None
        self._arguments: list[str] = []

    def opening(self) -> bytes:
        return b""

    def event(self, event: Event, choice: int = 0) -> bytes:
        match event:
            case ReasoningDelta(text):
                return sse(ResponseChunk(reasoning=text))
            case ContentDelta(text):
                return self._end_call() + sse(ResponseChunk(response=text))
            case ToolCallStart(_, _, name):
                printed = self._end_call()
                self._name = name
                return printed
            case ToolCallArguments(_, text):
                self._arguments.append(text)
                return b""
            case LogprobsDelta():
                return b""
            case Finish():
                return self._end_call() + self._usage(event) + DONE

    def broken(self, error: TenantryError) -> bytes:
        return sse(openai_errors.describe(error))

    def result(self, choices: Sequence[Sequence[Event]]) -> bytes:
        [events] = choices
        finish = events[-1]
        assert isinstance(finish, Finish)
        text = "".join(event.text for event in events if isinstance(event, ContentDelta))
        reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        result = FlatResult(
            response=_value(text) if self._is_json else text,
            reasoning=reasoning or UNSET,
            tool_calls=_calls(events) or UNSET,
            usage=usage_output(finish.usage, self._prices),
        )
        return envelope.success(result)

    def _end_call(self) -> bytes:
        if self._name is None:
            return b""
        call = FlatCall(name=self._name, arguments=_value("".join(self._arguments)))
        self._name = None
        self._arguments.clear()
        return sse(ResponseChunk(tool_calls=[call]))

    def _usage(self, finish: Finish) -> bytes:
        if not self._include_usage:
            return b""
        return sse(ResponseChunk(usage=usage_output(finish.usage, self._prices)))


def _calls(events: Sequence[Event]) -> list[FlatCall]:
    names: dict[int, str] = {}
    pieces: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallStart):
            names[event.index] = event.name
            pieces[event.index] = []
        elif isinstance(event, ToolCallArguments):
            pieces[event.index].append(event.text)
    return [
        FlatCall(name=name, arguments=_value("".join(pieces[index])))
        for index, name in names.items()
    ]


# Any: whatever JSON has
def _value(text: str) -> Any:
    """Read a value; an answer that was cut off stays text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
