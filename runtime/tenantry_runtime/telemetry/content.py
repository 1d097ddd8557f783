"""What was said, as the conventions print it, for tenants that want it in their own traces.

Cut at a bound, and said so; without it a span would be as large as a conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tenantry_runtime.core import (
    ContentDelta,
    Event,
    GenerateRequest,
    Message,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallStart,
)

MAX_CHARS = 16_384
"""Of one attribute."""
CUT = "…"


class Heard:
    """The answers of one request, as far as they fit."""

    def __init__(self) -> None:
        self._parts: dict[int, list[dict[str, str]]] = {}
        self._num_chars = 0

    def hear(self, events: Sequence[Event], choice: int) -> None:
        for event in events:
            if self._num_chars > MAX_CHARS:
                return
            match event:
                case ContentDelta(text=text):
                    self._add(choice, "text", "content", text)
                case ReasoningDelta(text=text):
                    self._add(choice, "reasoning", "content", text)
                case ToolCallStart(id=id, name=name):
                    call = {"type": "tool_call", "id": id, "name": name, "arguments": ""}
                    self._parts.setdefault(choice, []).append(call)
                    self._num_chars += len(name)
                case ToolCallArguments(text=text):
                    self._add(choice, "tool_call", "arguments", text)
                case _:
                    pass

    def printed(self) -> str:
        """Return the answers as `gen_ai.output.messages` has them."""
        return _printed(
            [{"role": "assistant", "parts": self._parts[choice]} for choice in sorted(self._parts)]
        )

    def _add(self, choice: int, kind: str, key: str, text: str) -> None:
        parts = self._parts.setdefault(choice, [])
        if not parts or parts[-1]["type"] != kind:
            parts.append({"type": kind, key: ""})
        parts[-1][key] += text
        self._num_chars += len(text)


def printed_input(request: GenerateRequest) -> str:
    """Return what was asked as `gen_ai.input.messages` has it."""
    messages = request.messages
    if request.prompt is not None:
        messages = (Message(role="user", content=request.prompt),)
    return _printed([_message(each) for each in messages])


def _message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, str]] = []
    if message.role == "tool":
        id = message.tool_call_id or ""
        parts.append({"type": "tool_call_response", "id": id, "response": message.content})
    elif message.content:
        parts.append({"type": "text", "content": message.content})
    if message.reasoning:
        parts.append({"type": "reasoning", "content": message.reasoning})
    parts += (
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    )
    return {"role": message.role, "parts": parts}


# Any: JSON of the conventions' own schema
def _printed(messages: list[dict[str, Any]]) -> str:
    text = msgspec.json.encode(messages).decode()
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + CUT
