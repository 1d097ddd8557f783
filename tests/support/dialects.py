"""How a test reads a body in a dialect, and prints what a model says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from support.openai_calls import MINIMAL
from support.requests import SEED, a_target
from tenantry_runtime.core import Event, Finish, FinishReason, GenerateRequest, Usage
from tenantry_runtime.edge.dialects.completions import Completions
from tenantry_runtime.edge.dialects.dialect import Dialect, Printer
from tenantry_runtime.edge.dialects.openai_chat import OpenAIChat
from tenantry_runtime.edge.dialects.responses import Responses

CREATED_S = 1_700_000_000

USAGE = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)

CHAT = OpenAIChat(draw_seed=lambda: SEED)
COMPLETIONS = Completions(draw_seed=lambda: SEED)
RESPONSES = Responses(draw_seed=lambda: SEED)

DIALECTS: dict[str, Dialect] = {
    "chat/completions": CHAT,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
}


def read(route: str, **fields: Any) -> GenerateRequest:
    """Parse the least that the route takes, and the fields."""
    body = json.dumps({**MINIMAL[route], **fields}).encode()
    return DIALECTS[route].parse(body, a_target(), session=None)


def a_printer(route: str, **fields: Any) -> Printer:
    dialect = DIALECTS[route]
    return dialect.printer(
        read(route, **fields),
        a_target(),
        response_id=f"{dialect.id_prefix}1",
        created_s=CREATED_S,
    )


def finish(reason: FinishReason = FinishReason.STOP) -> Finish:
    return Finish(reason=reason, usage=USAGE)


def whole(route: str, *choices: Sequence[Event], **fields: Any) -> Any:
    return json.loads(a_printer(route, **fields).result(choices))


def records(printed: bytes) -> list[Any]:
    """Read a stream; `[DONE]` stays text."""
    *blocks, rest = printed.decode().split("\n\n")
    assert rest == "", "an event ends with an empty line"
    bodies = [block.rpartition("data: ")[2] for block in blocks]
    return [body if body == "[DONE]" else json.loads(body) for body in bodies]


def stream(route: str, *choices: Sequence[Event], **fields: Any) -> list[Any]:
    """Print choices that take turns, an event each, and end together."""
    printer = a_printer(route, stream=True, **fields)
    printed = [printer.opening()]
    for turn in range(max(map(len, choices)) - 1):
        for index, events in enumerate(choices):
            if turn < len(events) - 1:
                printed.append(printer.event(events[turn], index))
    printed += [printer.event(events[-1], index) for index, events in enumerate(choices)]
    return records(b"".join(printed))
