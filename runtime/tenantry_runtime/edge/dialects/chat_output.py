"""Answers as OpenAI's chat API has them: one `chat.completion`, or a stream of its chunks.

A stream: the role of each choice; then reasoning (under both names that clients know), content and
tool calls as they come, and log probabilities in chunks of their own; then the finish reasons; then, if
the request wants it, a chunk with the usage and no choice; then `[DONE]`. An error ends a stream
without `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from tenantry_runtime.catalog import TokenPrices
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    GenerateRequest,
    LogprobsDelta,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.edge import envelope
from tenantry_runtime.errors import TenantryError

from . import openai_errors
from .dialect import TokenBytes
from .logprobs_output import LogprobsOutput, logprobs_of
from .sse import DONE, sse
from .usage_output import UsageOutput, usage_output


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
    logprobs: LogprobsOutput | None = None
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
    logprobs: LogprobsOutput | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: UsageOutput
    system_fingerprint: None = None


class ChatPrinter:
    """Prints the answers to one request. A `Printer`."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        created_s: int,
        token_bytes: TokenBytes,
        prices: TokenPrices | None = None,
        wrap: Callable[[Completion], bytes] = envelope.success,
    ) -> None:
        """`wrap` prints a whole answer."""
        self.response_id = response_id
        self._prices = prices
        self._token_bytes = token_bytes
        self._wrap = wrap
        self._has_logprobs = request.sampling.top_logprobs is not None
        self._created_s = created_s
        self._model = request.model
        self._include_usage = request.include_usage
        self._num_choices = self._num_running = request.num_choices

    def opening(self) -> bytes:
        role = Delta(role="assistant", content="")
        return b"".join(self._delta(role, choice) for choice in range(self._num_choices))

    def event(self, event: Event, choice: int = 0) -> bytes:
        match event:
            case ReasoningDelta(text):
                return self._delta(Delta(reasoning=text, reasoning_content=text), choice)
            case ContentDelta(text):
                return self._delta(Delta(content=text), choice)
            case ToolCallStart(index, call_id, name):
                function = FunctionDelta(name=name, arguments="")
                call = CallDelta(index=index, id=call_id, type="function", function=function)
                return self._delta(Delta(tool_calls=[call]), choice)
            case ToolCallArguments(index, text):
                call = CallDelta(index=index, function=FunctionDelta(arguments=text))
                return self._delta(Delta(tool_calls=[call]), choice)
            case LogprobsDelta():
                logprobs = LogprobsOutput(content=logprobs_of([event], self._token_bytes))
                return self._choice(ChunkChoice(index=choice, delta=Delta(), logprobs=logprobs))
            case Finish():
                return self._end(event, choice)

    def broken(self, error: TenantryError) -> bytes:
        return sse(openai_errors.describe(error))

    def result(self, choices: Sequence[Sequence[Event]]) -> bytes:
        finishes = [finish for events in choices if isinstance(finish := events[-1], Finish)]
        printed = [
            Choice(
                index=index,
                message=_message(events),
                finish_reason=finish.reason,
                logprobs=self._logprobs(events),
            )
            for index, (events, finish) in enumerate(zip(choices, finishes, strict=True))
        ]
        completion = Completion(
            id=self.response_id,
            created=self._created_s,
            model=self._model,
            choices=printed,
            usage=usage_output(finishes[-1].usage, self._prices),
        )
        return self._wrap(completion)

    def _logprobs(self, events: Sequence[Event]) -> LogprobsOutput | None:
        if not self._has_logprobs:
            return None
        return LogprobsOutput(content=logprobs_of(events, self._token_bytes))

    def _end(self, finish: Finish, choice: int) -> bytes:
        ending = ChunkChoice(index=choice, delta=Delta(), finish_reason=finish.reason)
        printed = self._choice(ending)
        self._num_running -= 1
        if self._num_running:
            return printed
        if self._include_usage:
            printed += sse(self._chunk([], usage_output(finish.usage, self._prices)))
        return printed + DONE

    def _delta(self, delta: Delta, choice: int) -> bytes:
        return self._choice(ChunkChoice(index=choice, delta=delta))

    def _choice(self, choice: ChunkChoice) -> bytes:
        return sse(self._chunk([choice]))

    def _chunk(self, choices: list[ChunkChoice], usage: UsageOutput | None = None) -> Chunk:
        return Chunk(
            id=self.response_id,
            object="chat.completion.chunk",
            created=self._created_s,
            model=self._model,
            choices=choices,
            usage=usage,
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
