"""What both families need to know of a conversation before their templates see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenantry_runtime.core import Message, Tool
from tenantry_runtime.errors import InvalidInput


def answered_calls(messages: Sequence[Message]) -> dict[int, int]:
    """Map each tool message's index to the call that it answers, counted from 0 over all messages.

    Clients reuse ids from turn to turn, so the latest call with the id is meant; a result without an
    id answers the first open call. Raises `InvalidInput` for a result that answers no call.
    """
    answered: dict[int, int] = {}
    latest: dict[str, int] = {}
    unanswered: list[int] = []
    num_calls = 0
    for index, message in enumerate(messages):
        if message.tool_calls:
            unanswered = list(range(num_calls, num_calls + len(message.tool_calls)))
            latest |= zip((call.id for call in message.tool_calls), unanswered, strict=True)
            num_calls += len(message.tool_calls)
        if message.role != "tool":
            continue
        if message.tool_call_id:
            call = latest.get(message.tool_call_id)
        else:
            call = unanswered[0] if unanswered else None
        if call is None:
            problem = f"{message.tool_call_id!r} answers no earlier tool call"
            raise InvalidInput(f"messages[{index}].tool_call_id", problem)
        answered[index] = call
        if call in unanswered:
            unanswered.remove(call)
    return answered


def describe_tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Write tools as the objects that released templates expect."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({"description": tool.description} if tool.description is not None else {}),
                "parameters": tool.parameters,
            },
        }
        for tool in tools
    ]


def wants_thinking(
    thinking: bool | None, effort: str | None, known: Mapping[str, str | None]
) -> bool | None:
    """Combine the two ways to ask for thinking. None: the model's default.

    `known` maps each effort to what the template calls it, None for those that mean no thinking.
    Raises `InvalidInput` for another effort, and where the two contradict each other; `thinking=False`
    with an effort is no contradiction, as clients send both.
    """
    if effort is None:
        return thinking
    if effort not in known:
        raise InvalidInput("reasoning_effort", f"{effort!r} is not one of {', '.join(known)}")
    if known[effort] is not None:
        return thinking
    if thinking:
        raise InvalidInput("reasoning_effort", f"{effort!r} contradicts the request to think")
    return False
