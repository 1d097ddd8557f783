"""The Kimi family (K2 to K2.6): conversations in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry_runtime.core import Message, RenderOptions, Tool

from .conversation import answered_calls, describe_tools, wants_thinking
from .family import Family, SamplingDefaults
from .kimi_calls import KimiCallWriter
from .output import Action, Rule, Rules, Terminal
from .prompt import OutputState
from .typescript import declare_tools, sort_deep

EFFORTS = {"none": None, "low": "high", "medium": "high", "high": "high", "max": "high"}
"""The model thinks or does not: it knows one effort."""


def _context(
    messages: Sequence[Message], tools: Sequence[Tool], options: RenderOptions
) -> dict[str, Any]:
    context: dict[str, Any] = {"messages": _messages(messages), "tools": None}
    if tools:
        context["tools"] = sort_deep(describe_tools(tools))
        context["tools_ts_str"] = declare_tools(tools)
    thinking = wants_thinking(options.thinking, options.reasoning_effort, EFFORTS)
    if thinking is not None:
        context["thinking"] = thinking
    if options.preserve_thinking is not None:
        context["preserve_thinking"] = options.preserve_thinking
    return context


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    answered = answered_calls(messages)
    # other ids than the model's own confuse it: every call is renamed, counting over all messages
    ids: list[str] = []
    rendered: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        fields: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.name is not None:
            fields["name"] = message.name
        if message.reasoning is not None:
            # K2.5's template reads the second key alone
            fields["reasoning"] = fields["reasoning_content"] = message.reasoning
        if message.role == "tool":
            fields["tool_call_id"] = ids[answered[index]]
        if message.tool_calls:
            fields["tool_calls"] = []
        for call in message.tool_calls:
            ids.append(f"functions.{call.name}:{len(ids)}")
            function = {"name": call.name, "arguments": call.arguments or "{}"}
            fields["tool_calls"].append({"id": ids[-1], "type": "function", "function": function})
        rendered.append(fields)
    return rendered


_S = OutputState
_T = Terminal
_BEGIN = Rule(_S.TOOL_NAME, (Action.BEGIN,))
_NEXT = Rule(_S.TOOL_NAME, (Action.CLOSE, Action.BEGIN))

RULES: Rules = {
    (_S.REASONING, _T.THINK_CLOSE): Rule(_S.CONTENT),
    # the model may call without closing its thinking first
    (_S.REASONING, _T.SECTION_OPEN): Rule(_S.TOOL_SECTION),
    (_S.REASONING, _T.CALL_OPEN): _BEGIN,
    (_S.CONTENT, _T.THINK_OPEN): Rule(_S.REASONING),
    (_S.CONTENT, _T.SECTION_OPEN): Rule(_S.TOOL_SECTION),
    (_S.CONTENT, _T.CALL_OPEN): _BEGIN,
    (_S.TOOL_SECTION, _T.CALL_OPEN): _BEGIN,
    (_S.TOOL_SECTION, _T.SECTION_CLOSE): Rule(_S.TOOL_BETWEEN),
    (_S.TOOL_NAME, _T.ARGUMENTS_OPEN): Rule(_S.TOOL_ARGUMENTS, (Action.START,)),
    (_S.TOOL_NAME, _T.CALL_CLOSE): Rule(_S.TOOL_SECTION, (Action.START, Action.CLOSE)),
    (_S.TOOL_NAME, _T.CALL_OPEN): _BEGIN,
    (_S.TOOL_NAME, _T.SECTION_CLOSE): Rule(_S.TOOL_BETWEEN),
    (_S.TOOL_ARGUMENTS, _T.CALL_CLOSE): Rule(_S.TOOL_SECTION, (Action.CLOSE,)),
    (_S.TOOL_ARGUMENTS, _T.CALL_OPEN): _NEXT,
    (_S.TOOL_ARGUMENTS, _T.SECTION_CLOSE): Rule(_S.TOOL_BETWEEN, (Action.CLOSE,)),
    (_S.TOOL_BETWEEN, _T.THINK_OPEN): Rule(_S.REASONING),
    (_S.TOOL_BETWEEN, _T.SECTION_OPEN): Rule(_S.TOOL_SECTION),
    (_S.TOOL_BETWEEN, _T.CALL_OPEN): _BEGIN,
}

KIMI = Family(
    name="kimi",
    context=_context,
    terminals={
        "<think>": _T.THINK_OPEN,
        "</think>": _T.THINK_CLOSE,
        "<|tool_calls_section_begin|>": _T.SECTION_OPEN,
        "<|tool_calls_section_end|>": _T.SECTION_CLOSE,
        "<|tool_call_begin|>": _T.CALL_OPEN,
        "<|tool_call_argument_begin|>": _T.ARGUMENTS_OPEN,
        "<|tool_call_end|>": _T.CALL_CLOSE,
    },
    rules=RULES,
    # ids come from the model's own text
    calls=lambda tools, messages, _new_id: KimiCallWriter(tools, messages),
    stop=("<|im_end|>", "[EOS]"),
    after_answer="<|im_end|>",
    after_calls="<|im_end|>",
    sampling=SamplingDefaults(temperature=1.0, top_p=0.95),
)
