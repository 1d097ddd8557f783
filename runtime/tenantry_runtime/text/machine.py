"""From token ids to events: one state machine for every family, streamed or not.

Control tokens are recognized by id, so text that merely looks like one passes as text, and how the
ids are cut into steps does not matter: the joined events are the same for every split.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence

from tenantry_runtime.core import (
    ContentDelta,
    FinishReason,
    OutputEvent,
    ReasoningDelta,
    ToolCallArguments,
)

from .controls import Controls
from .output import CallWriter, Rules, Terminal
from .prompt import OutputState

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class OutputMachine:
    """The output of one request, from the state in which its prompt left the model."""

    def __init__(
        self,
        *,
        initial: OutputState,
        rules: Rules,
        terminals: Mapping[int, Terminal],
        controls: Controls,
        token_bytes: Callable[[int], bytes],
        calls: CallWriter,
    ) -> None:
        self.state = initial
        self.reasoning_tokens = 0
        """Tokens that arrived while the model was thinking. The token that ends it counts, be it the
        closing tag, the opening of a call or the end of the turn; an opening tag does not."""
        self._rules = rules
        self._terminals = terminals
        self._controls = controls
        self._token_bytes = token_bytes
        self._calls = calls
        self._decoder = _Utf8Decoder("replace")
        self._events: list[OutputEvent] = []

    @property
    def num_tool_calls(self) -> int:
        """Complete calls so far: closed, with an object as their arguments."""
        return self._calls.num_complete

    def feed(self, ids: Sequence[int]) -> list[OutputEvent]:
        """Take the next tokens and return what is now certain."""
        for token_id in ids:
            if self.state is OutputState.REASONING:
                self.reasoning_tokens += 1
            if token_id in self._controls:
                # what a control token cuts in half will never be a whole character
                self._take(self._decoder.decode(b"", final=True))
                self._follow(self._terminals.get(token_id))
            else:
                self._take(self._decoder.decode(self._token_bytes(token_id)))
        return self._drain()

    def finish(self, reason: FinishReason) -> list[OutputEvent]:
        """Return what was held back.

        After `LENGTH` an open call stays incomplete and open thinking stays thinking; after any other
        reason a call whose arguments are whole counts although its closing tag is missing.
        """
        self._take(self._decoder.decode(b"", final=True))
        if reason is not FinishReason.LENGTH:
            self._say(self._calls.finish(self.state))
        return self._drain()

    def _follow(self, terminal: Terminal | None) -> None:
        rule = self._rules.get((self.state, terminal)) if terminal else None
        if rule is None:
            return
        for action in rule.actions:
            self._say(self._calls.act(action))
        self.state = rule.to

    def _take(self, text: str) -> None:
        if self.state is OutputState.TOOL_BETWEEN:
            text = text.lstrip()
            if text:
                self.state = OutputState.CONTENT
        if not text:
            return
        match self.state:
            case OutputState.REASONING:
                self._say([ReasoningDelta(text)])
            case OutputState.CONTENT:
                self._say([ContentDelta(text)])
            case OutputState.TOOL_SECTION:
                pass
            case inside:
                self._say(self._calls.take(inside, text))

    def _say(self, events: list[OutputEvent]) -> None:
        for event in events:
            merged = _merged(self._events[-1], event) if self._events else None
            if merged is None:
                self._events.append(event)
            else:
                self._events[-1] = merged

    def _drain(self) -> list[OutputEvent]:
        events, self._events = self._events, []
        return events


def _merged(last: OutputEvent, event: OutputEvent) -> OutputEvent | None:
    match last, event:
        case ReasoningDelta(text), ReasoningDelta(more):
            return ReasoningDelta(text + more)
        case ContentDelta(text), ContentDelta(more):
            return ContentDelta(text + more)
        case ToolCallArguments(index, text), ToolCallArguments(other, more) if index == other:
            return ToolCallArguments(index, text + more)
        case _:
            return None
