"""Kimi's tool calls as a grammar: a section of calls, each an id and a JSON object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tenantry_runtime.core import Tool

from .json_grammar import json_expression, object_schema
from .kimi_calls import PREFIX
from .lark import LarkText, literal, one_of, token

SECTION_OPEN, SECTION_CLOSE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_OPEN, CALL_CLOSE = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS_OPEN = "<|tool_call_argument_begin|>"

# no conversation has more calls; the writer of calls sees to it that no two have one number
_NUMBER = "/0|[1-9][0-9]{0,3}/"


def kimi_calls(
    lark: LarkText,
    tools: Sequence[Tool],
    ids: Mapping[str, int],
    *,
    has_many: bool,
    is_lenient: Callable[[int], bool],
) -> str:
    """Add the rules of a section of calls; return its expression."""
    number = lark.rule("NUMBER", _NUMBER)
    calls = []
    for index, tool in enumerate(tools):
        schema = object_schema(tool.parameters)
        arguments = lark.numbered(
            "arguments", json_expression(schema, is_lenient=is_lenient(index))
        )
        name = literal(f"{PREFIX}{tool.name}:")
        calls.append(
            f"{token(ids[CALL_OPEN])} {name} {number} "
            f"{token(ids[ARGUMENTS_OPEN])} {arguments} {token(ids[CALL_CLOSE])}"
        )
    call = lark.rule("call", one_of(calls))
    many = "+" if has_many else ""
    return f"{token(ids[SECTION_OPEN])} {call}{many} {token(ids[SECTION_CLOSE])}"
