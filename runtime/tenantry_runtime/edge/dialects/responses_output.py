"""Answers of `/v1/responses`: one object, or a stream of the events that make it.

A whole answer is what the last event of a stream carries: both are made by `_Fold`. A stream ends
with `response.completed`, `response.incomplete` or, after `error`, `response.failed`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    GenerateRequest,
    LogprobsDelta,
    ReasoningDelta,
    TextFormat,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)
from tenantry_runtime.errors import TenantryError

from . import openai_errors
from .dialect import TokenBytes
from .logprobs_output import Logprob, logprobs_of
from .responses_items import (
    ErrorEvent,
    FunctionCallOutput,
    FunctionTool,
    IncompleteDetails,
    InputDetails,
    MessageItemOutput,
    OutputDetails,
    OutputItem,
    ReasoningContent,
    ReasoningOutput,
    ReasoningSettings,
    ResponseError,
    ResponseObject,
    ResponsesUsage,
    StreamEvent,
    TextContent,
    TextFormatOutput,
    TextOutput,
    ToolChoiceOutput,
)
from .sse import sse


class ResponsesPrinter:
    """Prints the one answer to a request. A `Printer`."""

    def __init__(
        self,
        request: GenerateRequest,
        *,
        response_id: str,
        created_s: int,
        token_bytes: TokenBytes,
    ) -> None:
        self.response_id = response_id
        self._response = _new(request, response_id, created_s)
        self._fold = _Fold(self._response, token_bytes)

    def opening(self) -> bytes:
        return self._print(
            self._fold.event("response.created", response=self._response)
        ) + self._print(self._fold.event("response.in_progress", response=self._response))

    def event(self, event: Event, choice: int = 0) -> bytes:
        # each is printed before the next is made: they show what grows
        return b"".join(map(self._print, self._fold.take(event)))

    def broken(self, error: TenantryError) -> bytes:
        failure = openai_errors.describe(error)
        said = failure.error
        printed = sse(
            ErrorEvent(
                sequence_number=self._fold.next_number(),
                code=said.code,
                message=said.message,
                param=said.param,
                error=said,
                errors=failure.errors,
            ),
            event="error",
        )
        self._response.status = "failed"
        self._response.error = ResponseError(message=said.message)
        return printed + self._print(self._fold.event("response.failed", response=self._response))

    def result(self, choices: Sequence[Sequence[Event]]) -> bytes:
        [events] = choices
        for event in events:
            for _ in self._fold.take(event):
                pass
        return msgspec.json.encode(self._response)

    def _print(self, event: StreamEvent) -> bytes:
        return sse(event, event=event.type)


class _Fold:
    """Builds an answer from events, and says what each of them changes."""

    def __init__(self, response: ResponseObject, token_bytes: TokenBytes) -> None:
        self._response = response
        self._token_bytes = token_bytes
        self._num_events = 0
        self._open: OutputItem | None = None
        self._early: list[Logprob] = []
        """Of tokens before the first item."""

    def next_number(self) -> int:
        self._num_events += 1
        return self._num_events - 1

    # Any: the fields of `StreamEvent`
    def event(self, type: str, **fields: Any) -> StreamEvent:
        return StreamEvent(type=type, sequence_number=self.next_number(), **fields)

    def take(self, event: Event) -> Iterator[StreamEvent]:
        match event:
            case ReasoningDelta(text):
                yield from self._reason(text)
            case ContentDelta(text):
                yield from self._write(text)
            case ToolCallStart(_, call_id, name):
                yield from self._end_item()
                item = FunctionCallOutput(id=self._item_id("fc"), call_id=call_id, name=name)
                yield self._begin(item)
            case ToolCallArguments(_, text):
                assert isinstance(self._open, FunctionCallOutput)
                self._open.arguments += text
                yield self._about_open("response.function_call_arguments.delta", delta=text)
            case LogprobsDelta():
                yield from self._tell_logprobs(event)
            case Finish(reason=reason, usage=usage):
                yield from self._end(reason, usage)

    def _reason(self, text: str) -> Iterator[StreamEvent]:
        if not isinstance(self._open, ReasoningOutput):
            yield from self._end_item()
            item = ReasoningOutput(id=self._item_id("rs"))
            yield self._begin(item)
            part = ReasoningContent()
            item.content = [part]
            yield self._about_open("response.content_part.added", content_index=0, part=part)
        assert isinstance(self._open, ReasoningOutput)
        self._open.content[0].text += text
        yield self._about_open("response.reasoning_text.delta", content_index=0, delta=text)

    def _write(self, text: str) -> Iterator[StreamEvent]:
        early: list[Logprob] = []
        if not isinstance(self._open, MessageItemOutput):
            yield from self._end_item()
            item = MessageItemOutput(id=self._item_id("msg"))
            yield self._begin(item)
            part = TextContent()
            item.content = [part]
            yield self._about_open("response.content_part.added", content_index=0, part=part)
            early = self._early if len(self._response.output) == 1 else []
            part.logprobs = early
        assert isinstance(self._open, MessageItemOutput)
        self._open.content[0].text += text
        yield self._about_open(
            "response.output_text.delta", content_index=0, delta=text, logprobs=early
        )

    def _tell_logprobs(self, event: LogprobsDelta) -> Iterator[StreamEvent]:
        """Tell those of a message's tokens: the API has no place for others."""
        told = logprobs_of([event], self._token_bytes)
        if not self._response.output:
            # of text that is held back, unless an item of another kind comes
            self._early += told
        if not isinstance(self._open, MessageItemOutput):
            return
        part = self._open.content[0]
        part.logprobs = [*part.logprobs, *told]
        yield self._about_open(
            "response.output_text.delta", content_index=0, delta="", logprobs=told
        )

    def _end(self, reason: FinishReason, usage: Usage) -> Iterator[StreamEvent]:
        is_cut = reason is FinishReason.LENGTH
        yield from self._end_item("incomplete" if is_cut else "completed")
        response = self._response
        response.usage = _usage(usage)
        response.status = "incomplete" if is_cut else "completed"
        if is_cut:
            response.incomplete_details = IncompleteDetails()
        yield self.event(f"response.{response.status}", response=response)

    def _begin(self, item: OutputItem) -> StreamEvent:
        self._open = item
        # not in place: the default list is every answer's
        self._response.output = [*self._response.output, item]
        return self.event("response.output_item.added", output_index=self._index, item=item)

    def _end_item(self, status: str = "completed") -> Iterator[StreamEvent]:
        item = self._open
        match item:
            case None:
                return
            case MessageItemOutput(content=[part]):
                yield self._about_open(
                    "response.output_text.done",
                    content_index=0,
                    text=part.text,
                    logprobs=part.logprobs,
                )
                yield self._about_open("response.content_part.done", content_index=0, part=part)
            case ReasoningOutput(content=[part]):
                yield self._about_open(
                    "response.reasoning_text.done", content_index=0, text=part.text
                )
                yield self._about_open("response.content_part.done", content_index=0, part=part)
            case FunctionCallOutput(name=name, arguments=arguments):
                yield self._about_open(
                    "response.function_call_arguments.done", name=name, arguments=arguments
                )
        item.status = "incomplete" if status == "incomplete" else "completed"
        yield self.event("response.output_item.done", output_index=self._index, item=item)
        self._open = None

    # Any: the fields of `StreamEvent`
    def _about_open(self, type: str, **fields: Any) -> StreamEvent:
        assert self._open is not None
        return self.event(type, item_id=self._open.id, output_index=self._index, **fields)

    @property
    def _index(self) -> int:
        return len(self._response.output) - 1

    def _item_id(self, kind: str) -> str:
        own = self._response.id.removeprefix("resp_")
        return f"{kind}_{own}_{len(self._response.output)}"


def _new(request: GenerateRequest, response_id: str, created_s: int) -> ResponseObject:
    """Make an answer that has nothing yet but what was asked."""
    choice, sampling = request.tool_choice, request.sampling
    return ResponseObject(
        id=response_id,
        created_at=created_s,
        max_output_tokens=sampling.max_tokens,
        model=request.model,
        parallel_tool_calls=request.parallel_tool_calls,
        reasoning=ReasoningSettings(effort=request.options.reasoning_effort),
        temperature=sampling.temperature,
        text=TextOutput(format=_format(request)),
        tool_choice=choice.mode if choice.name is None else ToolChoiceOutput(name=choice.name),
        tools=[
            FunctionTool(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in request.tools
        ],
        top_logprobs=sampling.top_logprobs or 0,
        top_p=sampling.top_p,
    )


def _format(request: GenerateRequest) -> TextFormatOutput:
    asked = request.response_format
    if isinstance(asked, TextFormat):
        return TextFormatOutput(type="text")
    if asked.schema is None:
        return TextFormatOutput(type="json_object")
    return TextFormatOutput(
        type="json_schema", name=asked.name, schema=asked.schema, strict=asked.strict
    )


def _usage(usage: Usage) -> ResponsesUsage:
    return ResponsesUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
    )
