"""A stream of chat chunks as a client of OpenAI's protocol reads it, and what that protocol asks of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

DONE = "[DONE]"


@dataclass(slots=True, kw_only=True)
class Call:
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True, kw_only=True)
class Streamed:
    """What a client has at the end."""

    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Any = None
    error: Any = None
    is_done: bool = False
    """`[DONE]` came."""
    num_comments: int = 0

    @property
    def ended(self) -> str:
        """Name the one way in which it ended; fail if it ended in none, or in two."""
        assert self.is_done != (self.error is not None), self
        assert self.is_done == (self.finish_reason is not None), self
        return "error" if self.error is not None else "done"


def records(text: str) -> list[Any]:
    """Read the events of a stream; `[DONE]` stays text, comments are left out."""
    assert text == "" or text.endswith("\n\n"), "a stream ends with a whole event"
    events = [event for event in text.split("\n\n") if event and not event.startswith(":")]
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    bodies = [event.removeprefix("data: ") for event in events]
    return [body if body == DONE else json.loads(body) for body in bodies]


def read_stream(text: str) -> Streamed:
    """Join the deltas of one choice, and check that each is what the protocol allows there."""
    streamed = Streamed(num_comments=sum(each.startswith(":") for each in text.split("\n\n")))
    for record in records(text):
        assert not streamed.is_done, "nothing follows [DONE]"
        assert streamed.error is None, "nothing follows an error"
        if record == DONE:
            streamed.is_done = True
        elif "error" in record:
            streamed.error = record
        else:
            _take(record, streamed)
    return streamed


def _take(chunk: Any, streamed: Streamed) -> None:
    assert chunk["object"] == "chat.completion.chunk"
    if "usage" in chunk and chunk["usage"] is not None:
        assert streamed.usage is None, "usage comes once"
        assert chunk["choices"] == []
        streamed.usage = chunk["usage"]
        return
    [choice] = chunk["choices"]
    assert streamed.finish_reason is None, "no delta follows the finish reason"
    delta = choice["delta"]
    streamed.content += delta.get("content") or ""
    assert delta.get("reasoning") == delta.get("reasoning_content")
    streamed.reasoning += delta.get("reasoning") or ""
    for piece in delta.get("tool_calls", []):
        _take_call(piece, streamed.calls)
    streamed.finish_reason = choice["finish_reason"]


def _take_call(piece: Any, calls: list[Call]) -> None:
    function = piece["function"]
    if piece["index"] == len(calls):
        assert piece["type"] == "function"
        assert function["arguments"] == ""
        calls.append(Call(id=piece["id"], name=function["name"]))
        return
    # the call before is closed: only the last one is added to
    assert piece["index"] == len(calls) - 1
    assert set(piece) == {"index", "function"}
    assert set(function) == {"arguments"}
    calls[-1].arguments += function["arguments"]
