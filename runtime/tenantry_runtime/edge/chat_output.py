"""Answers as OpenAI's chat API has them: one `chat.completion`, or a stream of its chunks.

A stream: the role; then reasoning (under both names that clients know), content and tool calls as
they come; then the finish reason; then, unless the request says no, a chunk with the usage and no
choice; then `[DONE]`. An error ends a stream without `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from tenantry_runtime.catalog import TokenPrices, cost, neurons
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    GenerateRequest,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tenantry_runtime.errors import TenantryError

from . import envelope

DONE = b"data: [DONE]\n\n"


class CachedDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int


class ReasoningDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int


class UsageOutput(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedDetails
    completion_tokens_details: ReasoningDetails
    neurons: float | msgspec.UnsetType = msgspec.UNSET
    """What it costs, as Workers AI says it; of a model with prices."""


# omit_defaults: a delta carries only what is new
class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta] | None = None


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageOutput | None = None


class FunctionOutput(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: str


class CallOutput(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["function"] = "function"
    function: FunctionOutput


class MessageOutput(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[CallOutput] | msgspec.UnsetType = msgspec.UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: MessageOutput
    finish_reason: FinishReason
    logprobs: None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageOutput
    system_fingerprint: None = None


class StreamError(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAI's clients look for in a stream."""

    message: str
    type: str
    code: int


class StreamFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error in both forms: OpenAI's, and the API's envelope."""

    error: StreamError
    errors: list[envelope.ErrorEntry]
    success: bool = False
    result: None = None
    messages: list[str] = []


Printable: TypeAlias = Chunk | StreamFailure

_encoder = msgspec.json.Encoder()


class ChatPrinter:
    """Prints one answer, in the envelope if it is whole. A `Printer`."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        created_s: int,
        prices: TokenPrices | None = None,
    ) -> None:
        self.response_id = response_id
        self._prices = prices
        self._created_s = created_s
        self._model = request.model
        self._include_usage = request.include_usage

    def opening(self) -> bytes:
        return self._delta(Delta(role="assistant", content=""))

    def event(self, event: Event) -> bytes:
        match event:
            case ReasoningDelta(text):
                return self._delta(Delta(reasoning=text, reasoning_content=text))
            case ContentDelta(text):
                return self._delta(Delta(content=text))
            case ToolCallStart(index, call_id, name):
                function = FunctionDelta(name=name, arguments="")
                call = CallDelta(index=index, id=call_id, type="function", function=function)
                return self._delta(Delta(tool_calls=[call]))
            case ToolCallArguments(index, text):
                call = CallDelta(index=index, function=FunctionDelta(arguments=text))
                return self._delta(Delta(tool_calls=[call]))
            case Finish():
                return self._end(event)

    def broken(self, error: TenantryError) -> bytes:
        entry = envelope.error_entry(error)
        name = type(error).__name__
        return _sse(
            StreamFailure(
                error=StreamError(message=entry.message, type=name, code=entry.code),
                errors=[entry],
            )
        )

    def result(self, events: Sequence[Event]) -> bytes:
        finish = events[-1]
        assert isinstance(finish, Finish)
        choice = Choice(message=_message(events), finish_reason=finish.reason)
        completion = Completion(
            id=self.response_id,
            created=self._created_s,
            model=self._model,
            choices=[choice],
            usage=_usage(finish.usage, self._prices),
        )
        return envelope.success(completion)

    def _end(self, finish: Finish) -> bytes:
        last = self._chunk([ChunkChoice(delta=Delta(), finish_reason=finish.reason)])
        if not self._include_usage:
            return _sse(last) + DONE
        return _sse(last) + _sse(self._chunk([], _usage(finish.usage, self._prices))) + DONE

    def _delta(self, delta: Delta) -> bytes:
        return _sse(self._chunk([ChunkChoice(delta=delta)]))

    def _chunk(self, choices: list[ChunkChoice], usage: UsageOutput | None = None) -> Chunk:
        return Chunk(
            id=self.response_id,
            object="chat.completion.chunk",
            created=self._created_s,
            model=self._model,
            choices=choices,
            usage=usage,
        )


def _sse(record: Printable) -> bytes:
    # JSON as msgspec prints it has no line breaks, which would end the field
    return b"data: " + _encoder.encode(record) + b"\n\n"


def _usage(usage: Usage, prices: TokenPrices | None) -> UsageOutput:
    return UsageOutput(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=CachedDetails(cached_tokens=usage.cached_tokens),
        completion_tokens_details=ReasoningDetails(reasoning_tokens=usage.reasoning_tokens),
        neurons=msgspec.UNSET if prices is None else neurons(cost(usage, prices)),
    )


def _message(events: Sequence[Event]) -> MessageOutput:
    content = "".join(event.text for event in events if isinstance(event, ContentDelta))
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    calls = _calls(events)
    return MessageOutput(
        # null beside calls, as OpenAI has it; else a string, which clients count on
        content=None if calls and not content else content,
        reasoning=reasoning or msgspec.UNSET,
        reasoning_content=reasoning or msgspec.UNSET,
        tool_calls=calls or msgspec.UNSET,
    )


def _calls(events: Sequence[Event]) -> list[CallOutput]:
    starts = [event for event in events if isinstance(event, ToolCallStart)]
    pieces: dict[int, list[str]] = {start.index: [] for start in starts}
    for event in events:
        if isinstance(event, ToolCallArguments):
            pieces[event.index].append(event.text)
    return [
        CallOutput(
            id=start.id,
            function=FunctionOutput(name=start.name, arguments="".join(pieces[start.index])),
        )
        for start in starts
    ]
