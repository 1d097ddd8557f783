"""Checkpoints' text layers, scripted model output, and folds over events."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    Message,
    OutputEvent,
    ReasoningDelta,
    Tool,
    ToolCall,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.text import Control, OutputState, Prompt, Text, TextModel, load_text

ROOT = Path(__file__).resolve().parents[2]
CHECKPOINTS = ROOT / "runtime" / "tenantry_runtime" / "checkpoints"
KIMI_NANO = CHECKPOINTS / "kimi-k2.6-nano"
GLM_NANO = CHECKPOINTS / "glm-5.2-nano"
REAL_KIMI_TOKENIZER = ROOT.parent / "shared" / "reference" / "kimi-k2.6-tokenizer"


def counted_ids() -> Callable[[], str]:
    """Make call ids call_0, call_1, and so on."""
    numbers = itertools.count()
    return lambda: f"call_{next(numbers)}"


def a_text_model(directory: Path) -> TextModel:
    return load_text(directory, new_call_id=counted_ids())


def written(model: TextModel, prompt: Prompt) -> str:
    """Write a prompt as the string that the template made, control strings and all."""
    names = model.tokenizer.controls.names
    return "".join(p.text if isinstance(p, Text) else names[p.id] for p in prompt.parts)


def ids_of(model: TextModel, scripted: str) -> list[int]:
    """Tokenize what a model says; control strings in it become control tokens."""
    parts = model.tokenizer.controls.split(scripted)
    return [token_id for part in parts for token_id in model.encode_part(part)]


def num_controls(prompt: Prompt, token_id: int) -> int:
    return prompt.parts.count(Control(token_id))


def joined(events: Iterable[OutputEvent]) -> list[OutputEvent]:
    """Merge neighbors of one kind, so that only the whole answer counts."""
    merged: list[OutputEvent] = []
    for event in events:
        match merged[-1] if merged else None, event:
            case ContentDelta(text), ContentDelta(more):
                merged[-1] = ContentDelta(text + more)
            case ReasoningDelta(text), ReasoningDelta(more):
                merged[-1] = ReasoningDelta(text + more)
            case ToolCallArguments(index, text), ToolCallArguments(other, more) if index == other:
                merged[-1] = ToolCallArguments(index, text + more)
            case _:
                merged.append(event)
    return merged


class Answer:
    """What a client would have of an answer."""

    def __init__(self, events: Iterable[OutputEvent], num_tool_calls: int) -> None:
        self.events = joined(events)
        self.num_tool_calls = num_tool_calls

    @property
    def content(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ContentDelta))

    @property
    def reasoning(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ReasoningDelta))

    @property
    def starts(self) -> list[ToolCallStart]:
        return [e for e in self.events if isinstance(e, ToolCallStart)]

    def arguments(self, index: int) -> str:
        pieces = (e for e in self.events if isinstance(e, ToolCallArguments))
        return "".join(piece.text for piece in pieces if piece.index == index)


def answer_to(
    model: TextModel,
    scripted: str | Sequence[int],
    *,
    initial: OutputState = OutputState.CONTENT,
    tools: Sequence[Tool] = (),
    reason: FinishReason = FinishReason.STOP,
) -> Answer:
    """Let the output machine read a whole answer."""
    ids = ids_of(model, scripted) if isinstance(scripted, str) else list(scripted)
    machine = model.machine(initial, tools)
    events = [*machine.feed(ids), *machine.finish(reason)]
    return Answer(events, machine.num_tool_calls)


def a_tool(name: str = "get_weather", **properties: dict[str, Any]) -> Tool:
    """Make a tool whose arguments have these schemas."""
    return Tool(name=name, parameters={"type": "object", "properties": properties})


WEATHER = Tool(
    name="get_weather",
    description="Weather of a city",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "City"},
            "days": {"type": "integer"},
        },
        "required": ["city"],
    },
)


def a_call(
    name: str = "get_weather", arguments: str = '{"city": "Paris", "days": 2}', call_id: str = "x"
) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def user(content: str) -> Message:
    return Message(role="user", content=content)


def assistant(content: str = "", reasoning: str | None = None, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=calls)


def result(content: str, call_id: str | None = "x") -> Message:
    return Message(role="tool", content=content, tool_call_id=call_id)


WEATHER_TALK = (
    Message(role="system", content="Be brief."),
    user("Hi"),
    assistant("Hello!", "a greeting"),
    user("Weather in Paris?"),
    assistant("", "need tool", a_call()),
    result('{"t": 20}'),
)
"""System message, an old turn, and a tool round trip."""
