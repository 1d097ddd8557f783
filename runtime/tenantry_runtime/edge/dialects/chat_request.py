"""The parameters of chat, which Workers AI's dialect and OpenAI's share.

| parameters | |
|---|---|
| `messages` | `chat_input` |
| `tools`, `tool_choice`, `parallel_tool_calls`, `response_format` | `answer_format` |
| `temperature`, `top_p`, `top_k`, `min_p`, `seed`, `stop`, `n` | |
| `frequency_penalty`, `presence_penalty`, `repetition_penalty`, `logit_bias` | |
| `logprobs`, `top_logprobs` | |
| `max_tokens`, `max_completion_tokens` | the same; default: the rest of the context |
| `chat_template_kwargs`, `thinking`, `reasoning_effort` | an effort of null is `none` |
| `stream`, `stream_options` | |
| `prompt_cache_key` | the session, when no header names one |
| `options.rejectIfBusy` | |
| `user`, `store`, `metadata`, `service_tier`, `safety_identifier`, `prompt_cache_retention` | accepted; they cannot change an answer |
| `modalities`, `verbosity` | accepted with the value that asks for what happens anyway |
| those of `REFUSED` | refused, with a reason |

Everything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from tenantry_runtime.core import GenerateRequest, RenderOptions, Tool
from tenantry_runtime.errors import InvalidInput

from . import parameters
from .answer_format import (
    ResponseFormatInput,
    ToolChoiceInput,
    response_format,
    tool_choice,
)
from .chat_input import MessageInput, ToolInput, conversation, offered_tools
from .dialect import Target
from .parameters import Count, Input, NumTopLogprobs, SamplingInput

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "audio": "is not supported: answers are text",
        "prediction": "is not supported",
        "web_search_options": "is not supported: no model here searches the web",
        "functions": "is not supported; use 'tools'",
        "function_call": "is not supported; use 'tool_choice'",
    }
)
"""Parameters of OpenAI's API that are not here, and why or what is instead."""

NEUTRAL: Mapping[str, object] = MappingProxyType({"modalities": ["text"], "verbosity": "medium"})
"""Parameters with one accepted value: the one that asks for what happens anyway."""


class TemplateOptions(Input, frozen=True, kw_only=True):
    thinking: bool | None = None
    enable_thinking: bool | None = None
    preserve_thinking: bool | None = None
    clear_thinking: bool | None = None
    reasoning_effort: str | None = None
    """As the parameter of that name; the parameter's null is `none`, this one's is no field."""


class ThinkingInput(Input, frozen=True, kw_only=True):
    """As Moonshot's and Z.ai's own APIs have it."""

    type: Literal["enabled", "disabled"]
    keep: Literal["all"] | None = None
    """Moonshot: the reasoning of every turn."""
    clear_thinking: bool | None = None
    """Z.ai: false is the same."""


class ChatInput(SamplingInput, frozen=True, kw_only=True):
    """A body. A null is the same as no field, except where it says otherwise."""

    model: str | None = None
    messages: list[MessageInput] | None = None
    tools: list[ToolInput] | None = None
    tool_choice: ToolChoiceInput | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormatInput | None = None
    logprobs: bool | None = None
    top_logprobs: NumTopLogprobs | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    chat_template_kwargs: TemplateOptions | None = None
    thinking: ThinkingInput | None = None
    reasoning_effort: str | UnsetType | None = UNSET
    """Null is `none`, as Cloudflare's own provider for the AI SDK uses it."""
    # Any: compared with the one accepted value, or refused
    modalities: Any = None
    verbosity: Any = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    functions: Any = None
    function_call: Any = None


def generate_request(
    asked: ChatInput,
    target: Target,
    *,
    session: str | None,
    seed: int,
    include_usage: bool,
    prompt: str | None = None,
) -> GenerateRequest:
    """Translate a body.

    `session` is what the header says; `seed` and `include_usage` hold where the body says nothing.
    """
    _check_unsupported(asked)
    tools = _tools(asked, target)
    choice = tool_choice(asked.tool_choice, tools)
    return GenerateRequest(
        model=target.entry.id,
        sampling=parameters.sampling(
            asked,
            target,
            seed=seed,
            max_tokens=_max_tokens(asked),
            top_logprobs=_top_logprobs(asked),
        ),
        messages=() if asked.messages is None else conversation(asked.messages),
        prompt=prompt,
        # a model that is told of no tool calls none
        tools=() if choice.mode == "none" else tools,
        tool_choice=choice,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        response_format=response_format(asked.response_format),
        num_choices=asked.n or 1,
        options=_render_options(asked),
        stream=bool(asked.stream),
        include_usage=parameters.include_usage(asked, default=include_usage),
        session=parameters.session(session, asked),
        may_wait=parameters.may_wait(asked),
    )


def check_tools(tools: tuple[Tool, ...], target: Target) -> None:
    """Raise `InvalidInput` for tools that the model cannot call."""
    if tools and "function_calling" not in target.entry.capabilities:
        raise InvalidInput("tools", "the model calls no functions")


def _check_unsupported(asked: ChatInput) -> None:
    for name, problem in REFUSED.items():
        if getattr(asked, name) is not None:
            raise InvalidInput(name, problem)
    for name, accepted in NEUTRAL.items():
        value = getattr(asked, name)
        if value is not None and value != accepted:
            raise InvalidInput(name, f"only {accepted!r} is supported")


def _tools(asked: ChatInput, target: Target) -> tuple[Tool, ...]:
    tools = offered_tools(asked.tools or ())
    check_tools(tools, target)
    return tools


def _max_tokens(asked: ChatInput) -> int | None:
    if asked.max_completion_tokens is None:
        return asked.max_tokens
    if asked.max_tokens not in (None, asked.max_completion_tokens):
        raise InvalidInput("max_completion_tokens", "differs from 'max_tokens'")
    return asked.max_completion_tokens


def _top_logprobs(asked: ChatInput) -> int | None:
    if asked.logprobs:
        return asked.top_logprobs or 0
    if asked.top_logprobs:
        raise InvalidInput("top_logprobs", "needs 'logprobs' to be true")
    return None


def _render_options(asked: ChatInput) -> RenderOptions:
    options = asked.chat_template_kwargs or TemplateOptions()
    field = "chat_template_kwargs"
    thinking = options.thinking
    if thinking is None:
        thinking = options.enable_thinking
    elif options.enable_thinking not in (None, thinking):
        raise InvalidInput(f"{field}.enable_thinking", "contradicts 'thinking'")
    if asked.thinking is not None:
        is_enabled = asked.thinking.type == "enabled"
        if thinking not in (None, is_enabled):
            raise InvalidInput("thinking", f"contradicts '{field}'")
        thinking = is_enabled
    return RenderOptions(
        thinking=thinking,
        preserve_thinking=_preserve_thinking(options, asked.thinking),
        reasoning_effort=_reasoning_effort(asked.reasoning_effort, options),
    )


def _preserve_thinking(options: TemplateOptions, thinking: ThinkingInput | None) -> bool | None:
    """Combine the ways to say which reasoning of past turns is kept; all must say the same."""
    cleared = {"chat_template_kwargs.clear_thinking": options.clear_thinking}
    said = {"chat_template_kwargs.preserve_thinking": options.preserve_thinking}
    if thinking is not None:
        said["thinking.keep"] = None if thinking.keep is None else True
        cleared["thinking.clear_thinking"] = thinking.clear_thinking
    said |= {field: None if value is None else not value for field, value in cleared.items()}
    preserve: bool | None = None
    for field, value in said.items():
        if preserve is not None and value not in (None, preserve):
            raise InvalidInput(field, "contradicts what is said elsewhere of past reasoning")
        preserve = preserve if value is None else value
    return preserve


def _reasoning_effort(asked: str | UnsetType | None, options: TemplateOptions) -> str | None:
    if asked is UNSET:
        return options.reasoning_effort
    effort = "none" if asked is None else asked
    if options.reasoning_effort not in (None, effort):
        field = "chat_template_kwargs.reasoning_effort"
        raise InvalidInput(field, "differs from 'reasoning_effort'")
    return effort
