"""OpenAI's `/v1/responses`, of which nothing is stored: each request has its whole conversation.

| parameters | |
|---|---|
| `input`, `instructions` | text, or items (`responses_input`) |
| `tools`, `tool_choice`, `parallel_tool_calls` | functions, in this API's flat form |
| `text.format` | `text`, `json_object`, `json_schema` |
| `reasoning.effort` | |
| `temperature`, `top_p`, `max_output_tokens` | |
| `top_logprobs`, `include: ["message.output_text.logprobs"]` | each asks for log probabilities |
| `include: ["reasoning.encrypted_content"]` | accepted: reasoning is there in the clear, and may come back so |
| `stream`, `stream_options`, `prompt_cache_key`, `options.rejectIfBusy` | as in chat |
| `user`, `store`, `metadata`, `service_tier`, `safety_identifier`, `prompt_cache_retention`, `reasoning.summary` | accepted; they cannot change an answer |
| `truncation`, `background`, `text.verbosity` | accepted with the value that asks for what happens anyway |
| those of `REFUSED` | refused, with a reason |
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from tenantry_runtime.core import (
    GenerateRequest,
    JsonFormat,
    RenderOptions,
    ResponseFormat,
    Sampling,
    TextFormat,
)
from tenantry_runtime.errors import InvalidInput, TenantryError

from . import parameters
from .answer_format import JsonObject, PlainText, ToolChoiceInput, tool_choice
from .chat_input import ToolInput, offered_tools
from .chat_request import check_tools
from .dialect import Target
from .openai_dialect import OpenAIDialect
from .parameters import Count, Input, NumTopLogprobs, ServiceInput
from .responses_input import read_input
from .responses_output import ResponsesPrinter

_STATELESS = "is not supported: nothing is stored; send the whole conversation as 'input'"

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "previous_response_id": _STATELESS,
        "conversation": _STATELESS,
        "prompt": "is not supported: there are no stored prompts",
        "max_tool_calls": "is not supported: there are no built-in tools",
        "context_management": "is not supported",
    }
)
"""Parameters of OpenAI's API that are not here, and why."""

NEUTRAL: Mapping[str, object] = MappingProxyType({"truncation": "disabled", "background": False})
"""Parameters with one accepted value: the one that asks for what happens anyway."""

_OWN_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "response_format.json_schema": "text.format.schema",
        "response_format": "text.format",
        "reasoning_effort": "reasoning.effort",
        "messages": "input",
    }
)
"""Of fields that the chat API has, and the layers behind the dialects speak of."""

Included: TypeAlias = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class SchemaFormat(Input, frozen=True, kw_only=True, tag_field="type", tag="json_schema"):
    name: str = ""
    description: str | None = None
    # Any: a JSON schema
    schema: dict[str, Any]
    strict: bool | None = None


class TextInput(Input, frozen=True, kw_only=True):
    format: PlainText | JsonObject | SchemaFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningInput(Input, frozen=True, kw_only=True):
    effort: str | None = None
    # the reasoning itself is in the answer
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesInput(ServiceInput, frozen=True, kw_only=True):
    """The body of `/responses`."""

    model: str
    # Any: items, whose types are looked at one by one
    input: Annotated[str, Meta(min_length=1)] | list[dict[str, Any]]
    instructions: str | None = None
    tools: list[ToolInput] | None = None
    tool_choice: ToolChoiceInput | None = None
    parallel_tool_calls: bool | None = None
    text: TextInput | None = None
    reasoning: ReasoningInput | None = None
    max_output_tokens: Count | None = None
    top_logprobs: NumTopLogprobs | None = None
    include: list[Included] | None = None
    # Any: compared with the one accepted value, or refused
    truncation: Any = None
    background: Any = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    max_tool_calls: Any = None
    context_management: Any = None


_decoder = msgspec.json.Decoder(ResponsesInput)


class Responses(OpenAIDialect):
    """The dialect; stateless."""

    id_prefix = "resp_"

    def parse(self, body: bytes, target: Target, *, session: str | None) -> GenerateRequest:
        """Read a request, as `Dialect` says."""
        asked = parameters.decode(_decoder, body)
        _check_unsupported(asked)
        tools = offered_tools(asked.tools or ())
        check_tools(tools, target)
        choice = tool_choice(asked.tool_choice, tools)
        parameters.include_usage(asked, default=True)
        return GenerateRequest(
            model=target.entry.id,
            sampling=self._sampling(asked, target),
            messages=read_input(asked.input, asked.instructions),
            tools=() if choice.mode == "none" else tools,
            tool_choice=choice,
            parallel_tool_calls=asked.parallel_tool_calls is not False,
            response_format=_format(asked.text),
            options=RenderOptions(
                reasoning_effort=None if asked.reasoning is None else asked.reasoning.effort
            ),
            stream=bool(asked.stream),
            session=parameters.session(session, asked),
            may_wait=parameters.may_wait(asked),
        )

    def printer(
        self, request: GenerateRequest, target: Target, *, response_id: str, created_s: int
    ) -> ResponsesPrinter:
        """Make the printer of one answer, as `Dialect` says."""
        return ResponsesPrinter(
            request, response_id=response_id, created_s=created_s, token_bytes=target.token_bytes
        )

    def error(self, error: TenantryError) -> tuple[int, bytes]:
        """Return status and body, as `Dialect` says."""
        if isinstance(error, InvalidInput):
            error = InvalidInput(_own_name(error.field), error.problem)
        return super().error(error)

    def _sampling(self, asked: ResponsesInput, target: Target) -> Sampling:
        temperature, top_p = asked.temperature, asked.top_p
        top_logprobs = asked.top_logprobs or None
        if "message.output_text.logprobs" in (asked.include or ()):
            top_logprobs = top_logprobs or 0
        return Sampling(
            seed=self._draw_seed(),
            temperature=target.defaults.temperature if temperature is None else temperature,
            top_p=target.defaults.top_p if top_p is None else top_p,
            max_tokens=asked.max_output_tokens,
            top_logprobs=top_logprobs,
        )


def _own_name(field: str) -> str:
    """Return this API's name of a field that something behind the dialect has called by chat's."""
    for name, own in _OWN_NAMES.items():
        if field.startswith(name):
            field = own + field.removeprefix(name)
    return field.replace("].function.", "].") if field.startswith("tools[") else field


def _check_unsupported(asked: ResponsesInput) -> None:
    for name, problem in REFUSED.items():
        if getattr(asked, name) is not None:
            raise InvalidInput(name, problem)
    for name, accepted in NEUTRAL.items():
        value = getattr(asked, name)
        # by type too: 0 and False are equal
        if value is not None and (value != accepted or type(value) is not type(accepted)):
            raise InvalidInput(name, f"only {accepted!r} is supported")


def _format(text: TextInput | None) -> ResponseFormat:
    match None if text is None else text.format:
        case None | PlainText():
            return TextFormat()
        case JsonObject():
            return JsonFormat()
        case SchemaFormat(schema=schema, name=name, strict=strict):
            return JsonFormat(schema=schema, name=name, strict=strict is not False)
