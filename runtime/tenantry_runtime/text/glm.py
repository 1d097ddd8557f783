"""The GLM family (4.7 to 5.2): conversations in, answers out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tenantry_runtime.core import Message, RenderOptions, Tool, ToolCall
from tenantry_runtime.errors import InvalidInput

from .conversation import answered_calls, describe_tools, wants_thinking
from .family import Family, SamplingDefaults
from .glm_calls import GlmCallWriter
from .output import Action, Rule, Rules, Terminal
from .prompt import OutputState

EFFORTS = {
    "none": None,
    "minimal": None,
    "low": "high",
    "medium": "high",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}
"""What the model knows of each effort that a request may name; None is no thinking."""


def _context(
    messages: Sequence[Message], tools: Sequence[Tool], options: RenderOptions
) -> dict[str, Any]:
    context: dict[str, Any] = {
        "messages": _messages(messages),
        "tools": describe_tools(tools) or None,
    }
    effort = options.reasoning_effort
    thinking = wants_thinking(options.thinking, effort, EFFORTS)
    if effort is not None and EFFORTS[effort] is not None:
        context["reasoning_effort"] = EFFORTS[effort]
    if thinking is not None:
        context["enable_thinking"] = thinking
    if options.preserve_thinking is not None:
        context["clear_thinking"] = not options.preserve_thinking
    return context


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_message(index, messages[index]) for index in _in_call_order(messages)]


def _in_call_order(messages: Sequence[Message]) -> list[int]:
    """Order the results of parallel calls like the calls: the format itself names no call."""
    answered = answered_calls(messages)
    order: list[int] = []
    results: list[int] = []
    for index, message in enumerate(messages):
        if message.role == "tool":
            results.append(index)
            continue
        order += sorted(results, key=answered.__getitem__)
        results = []
        order.append(index)
    return order + sorted(results, key=answered.__getitem__)


def _message(index: int, message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": _arguments(call, f"messages[{index}].tool_calls[{position}]"),
                },
            }
            for position, call in enumerate(message.tool_calls)
        ]
    return fields


def _arguments(call: ToolCall, where: str) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where}.function.arguments", f"is not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise InvalidInput(f"{where}.function.arguments", "must be the JSON text of an object")
    return arguments


_S = OutputState
_T = Terminal
_BEGIN = Rule(_S.TOOL_NAME, (Action.BEGIN,))

RULES: Rules = {
    (_S.REASONING, _T.THINK_CLOSE): Rule(_S.CONTENT),
    # the model may call without closing its thinking first
    (_S.REASONING, _T.CALL_OPEN): _BEGIN,
    (_S.CONTENT, _T.THINK_OPEN): Rule(_S.REASONING),
    (_S.CONTENT, _T.CALL_OPEN): _BEGIN,
    (_S.TOOL_NAME, _T.KEY_OPEN): Rule(_S.TOOL_KEY, (Action.START, Action.KEY)),
    (_S.TOOL_NAME, _T.CALL_CLOSE): Rule(_S.TOOL_BETWEEN, (Action.START, Action.CLOSE)),
    (_S.TOOL_NAME, _T.CALL_OPEN): _BEGIN,
    (_S.TOOL_KEY, _T.KEY_CLOSE): Rule(_S.TOOL_ARGUMENTS),
    (_S.TOOL_KEY, _T.VALUE_OPEN): Rule(_S.TOOL_VALUE, (Action.OPEN_VALUE,)),
    (_S.TOOL_KEY, _T.CALL_CLOSE): Rule(_S.TOOL_BETWEEN, (Action.CLOSE,)),
    (_S.TOOL_KEY, _T.CALL_OPEN): Rule(_S.TOOL_NAME, (Action.CLOSE, Action.BEGIN)),
    (_S.TOOL_ARGUMENTS, _T.KEY_OPEN): Rule(_S.TOOL_KEY, (Action.KEY,)),
    (_S.TOOL_ARGUMENTS, _T.VALUE_OPEN): Rule(_S.TOOL_VALUE, (Action.OPEN_VALUE,)),
    (_S.TOOL_ARGUMENTS, _T.CALL_CLOSE): Rule(_S.TOOL_BETWEEN, (Action.CLOSE,)),
    (_S.TOOL_ARGUMENTS, _T.CALL_OPEN): Rule(_S.TOOL_NAME, (Action.CLOSE, Action.BEGIN)),
    (_S.TOOL_VALUE, _T.VALUE_CLOSE): Rule(_S.TOOL_ARGUMENTS, (Action.CLOSE_VALUE,)),
    (_S.TOOL_VALUE, _T.KEY_OPEN): Rule(_S.TOOL_KEY, (Action.CLOSE_VALUE, Action.KEY)),
    (_S.TOOL_VALUE, _T.CALL_CLOSE): Rule(_S.TOOL_BETWEEN, (Action.CLOSE_VALUE, Action.CLOSE)),
    (_S.TOOL_BETWEEN, _T.THINK_OPEN): Rule(_S.REASONING),
    (_S.TOOL_BETWEEN, _T.CALL_OPEN): _BEGIN,
}

GLM = Family(
    name="glm",
    context=_context,
    terminals={
        "<think>": _T.THINK_OPEN,
        "</think>": _T.THINK_CLOSE,
        "<tool_call>": _T.CALL_OPEN,
        "</tool_call>": _T.CALL_CLOSE,
        "<arg_key>": _T.KEY_OPEN,
        "</arg_key>": _T.KEY_CLOSE,
        "<arg_value>": _T.VALUE_OPEN,
        "</arg_value>": _T.VALUE_CLOSE,
    },
    rules=RULES,
    # ids that no two calls share, in this conversation or another
    calls=lambda tools, _messages, new_id: GlmCallWriter(tools, new_id),
    stop=("<|endoftext|>", "<|user|>", "<|observation|>"),
    after_answer="<|user|>",
    after_calls="<|observation|>",
    sampling=SamplingDefaults(temperature=1.0, top_p=0.95),
)
