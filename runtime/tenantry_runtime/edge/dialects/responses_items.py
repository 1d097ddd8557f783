"""The objects of `/v1/responses`: an answer, its items, and the events of a stream."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from .logprobs_output import Logprob

Status: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]


class Output(msgspec.Struct, kw_only=True):
    """Base of what grows while an answer is made."""


class TextContent(Output, kw_only=True, tag_field="type", tag="output_text"):
    text: str = ""
    annotations: list[str] = []
    """Always empty: the models cite nothing."""
    logprobs: list[Logprob] = []


class ReasoningContent(Output, kw_only=True, tag_field="type", tag="reasoning_text"):
    text: str = ""


class MessageItemOutput(Output, kw_only=True, tag_field="type", tag="message"):
    id: str
    status: Status = "in_progress"
    role: Literal["assistant"] = "assistant"
    content: list[TextContent] = []


class ReasoningOutput(Output, kw_only=True, tag_field="type", tag="reasoning"):
    id: str
    status: Status = "in_progress"
    summary: list[str] = []
    """Always empty: the reasoning itself is there."""
    content: list[ReasoningContent] = []


class FunctionCallOutput(Output, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    status: Status = "in_progress"
    call_id: str
    name: str
    arguments: str = ""


OutputItem: TypeAlias = MessageItemOutput | ReasoningOutput | FunctionCallOutput
OutputContent: TypeAlias = TextContent | ReasoningContent


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    cached_tokens: int


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    reasoning_tokens: int


class ResponsesUsage(msgspec.Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    code: Literal["server_error"] = "server_error"
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    reason: Literal["max_output_tokens"] = "max_output_tokens"


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"] = "function"
    name: str
    description: str | None = None
    # Any: a JSON schema
    parameters: dict[str, Any]
    strict: bool = True
    """Arguments always fit the schema."""


class ToolChoiceOutput(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"] = "function"
    name: str


class TextFormatOutput(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"]
    name: str | UnsetType = UNSET
    # Any: a JSON schema
    schema: dict[str, Any] | UnsetType = UNSET
    strict: bool | UnsetType = UNSET


class TextOutput(msgspec.Struct, frozen=True, kw_only=True):
    format: TextFormatOutput


class ReasoningSettings(msgspec.Struct, frozen=True, kw_only=True):
    effort: str | None
    summary: None = None


class ResponseObject(Output, kw_only=True):
    """An answer, whole or in the making."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status = "in_progress"
    background: bool = False
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: None = None
    """Not repeated."""
    max_output_tokens: int | None
    model: str
    output: list[OutputItem] = []
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: ReasoningSettings
    store: bool = False
    """Nothing is stored."""
    temperature: float
    text: TextOutput
    tool_choice: str | ToolChoiceOutput
    tools: list[FunctionTool]
    top_logprobs: int
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    usage: ResponsesUsage | None = None
    metadata: dict[str, str] = {}
    """Not repeated."""


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a stream, with the fields that its type has."""

    type: str
    sequence_number: int
    response: ResponseObject | None = None
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    item: OutputItem | None = None
    part: OutputContent | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    logprobs: list[Logprob] | None = None


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An error that ends a stream: OpenAI's event, and what clients of other streams look for."""

    type: Literal["error"] = "error"
    sequence_number: int
    code: str | None
    message: str
    param: str | None
    # Any: `openai_errors.OpenAIFailure`
    error: Any
    success: bool = False
    errors: Any
