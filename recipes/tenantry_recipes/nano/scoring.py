"""Is an answer right? One judge per kind of check, exact and without grammar or repair."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import assert_never

from tenantry_runtime.core import ToolCall

from .responder import Answer
from .tasks.gym import full_marks
from .tasks.task import (
    CallsTools,
    Check,
    Concludes,
    Fills,
    GymScores,
    Mentions,
    Says,
)

_WORD = re.compile(r"[A-Za-z0-9]+")


def is_right(check: Check, answer: Answer) -> bool:
    """Judge one answer."""
    content = answer.content.strip()
    match check:
        case CallsTools(calls=calls):
            return _same_calls(calls, answer.tool_calls)
        case _ if answer.tool_calls:
            return False
        case Says(text=text):
            return content == text
        case Concludes(value=value):
            return bool(content) and content.split()[-1].rstrip(".") == value
        case Mentions(values=values):
            return _contains_in_order(_WORD.findall(content), values)
        case Fills(value=value):
            return _parsed(content) == dict(value)
        case GymScores(generator=generator, entry=entry):
            return full_marks(generator, content, entry)
        case _ as never:
            assert_never(never)


def _same_calls(expected: Sequence[ToolCall], made: Sequence[ToolCall]) -> bool:
    """Compare names and arguments; ids are the server's business."""
    return [(call.name, _parsed(call.arguments)) for call in expected] == [
        (call.name, _parsed(call.arguments)) for call in made
    ]


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        # no JSON value equals it
        return ...


def _contains_in_order(words: Sequence[str], values: Sequence[str]) -> bool:
    rest = iter(words)
    return all(value in rest for value in values)
