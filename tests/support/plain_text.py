"""A text layer whose tokens are characters, so that a test can write what a model says.

A few characters are control tokens: `\x01` ends the turn, `\x02` ends the thinking, `\x03` opens a
tool call and `\x04` closes it; between them stand the name, `\x05` and the arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    Message,
    OutputEvent,
    ReasoningDelta,
    RenderOptions,
    Tool,
    ToolCallArguments,
    ToolCallStart,
)
from tenantry_runtime.edge.offer import Offer
from tenantry_runtime.text import OutputState, Prompt, SamplingDefaults, Text

END, THINK_END, CALL, CALL_END, ARGUMENTS = "\x01", "\x02", "\x03", "\x04", "\x05"

KIMI = CatalogEntry(
    id="@cf/moonshotai/kimi-k2.6",
    aliases=("kimi-k2.6",),
    directory="/nowhere",
    description="A model",
    capabilities=("function_calling", "reasoning"),
)
GLM = CatalogEntry(
    id="@cf/zai-org/glm-5.2",
    aliases=("glm-5.2",),
    directory="/nowhere",
    capabilities=("reasoning",),
)

CONTEXT_TOKENS = 1000


class PlainMachine:
    """An output machine over characters."""

    def __init__(self, initial: OutputState, width: int = 1) -> None:
        self.state = initial
        self._width = width
        self.reasoning_tokens = 0
        self.num_tool_calls = 0
        self._num_started = 0
        self._name = ""

    def feed(self, ids: Sequence[int]) -> list[OutputEvent]:
        taken = [event for token_id in ids for event in self._take(chr(token_id))]
        events: list[OutputEvent] = []
        for kind, group in itertools.groupby(taken, key=type):
            # a step's content is one event, as the real machine has it
            run = list(group)
            text = "".join(event.text for event in run if isinstance(event, ContentDelta))
            events += [ContentDelta(text)] if kind is ContentDelta else run
        return events

    def finish(self, reason: FinishReason) -> list[OutputEvent]:
        return []

    def _take(self, char: str) -> list[OutputEvent]:
        match self.state, char:
            case OutputState.REASONING, _:
                self.reasoning_tokens += 1
                if char != THINK_END:
                    return [] if char == END else [ReasoningDelta(char)]
                self.state = OutputState.CONTENT
            case _, "\x03":
                self.state, self._name = OutputState.TOOL_NAME, ""
            case OutputState.TOOL_NAME, "\x05":
                self.state = OutputState.TOOL_ARGUMENTS
                self._num_started += 1
                index = self._num_started - 1
                return [ToolCallStart(index, f"call_{index}", self._name)]
            case OutputState.TOOL_NAME, _:
                self._name += char
            case OutputState.TOOL_ARGUMENTS, "\x04":
                self.state = OutputState.CONTENT
                self.num_tool_calls += 1
            case OutputState.TOOL_ARGUMENTS, _:
                return [ToolCallArguments(self._num_started - 1, char)]
            case _, "\x01":
                pass
            case _:
                return [ContentDelta(char * self._width)]
        return []


@dataclass
class PlainText:
    """A `TextLayer`. Thinks if a request asks for it."""

    sampling_defaults: SamplingDefaults = field(
        default_factory=lambda: SamplingDefaults(temperature=0.6, top_p=0.95)
    )
    stop_token_ids: frozenset[int] = frozenset({ord(END)})
    width: int = 1
    """How often each character of content is written."""

    vocab_size: int = 0x110000

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id).encode()

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool], options: RenderOptions
    ) -> Prompt:
        lines = [f"{message.role}:{message.content}\n" for message in messages]
        initial = OutputState.REASONING if options.thinking else OutputState.CONTENT
        return Prompt((Text("".join(lines)),), initial)

    def encode(self, prompt: Prompt) -> list[int]:
        return [ord(char) for part in prompt.parts if isinstance(part, Text) for char in part.text]

    def machine(
        self, initial: OutputState, tools: Sequence[Tool], messages: Sequence[Message] = ()
    ) -> PlainMachine:
        return PlainMachine(initial, self.width)


def an_offer(
    entry: CatalogEntry = KIMI,
    *,
    context_tokens: int = CONTEXT_TOKENS,
    text: PlainText | None = None,
) -> Offer:
    return Offer(entry=entry, text=text or PlainText(), context_tokens=context_tokens)
