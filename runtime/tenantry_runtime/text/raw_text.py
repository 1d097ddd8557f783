"""The strings that fit a schema, as text without quotes: a terminal of Lark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .lark import literal

_ANYTHING = "(?s:.*)"


def raw_text(schema: Mapping[str, Any], *, has_pattern: bool = True) -> str:
    """Return the terminal; `has_pattern`: whether it keeps to a pattern, if the schema has one."""
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        texts = [value for value in values if isinstance(value, str)] if values else []
        if texts:
            return " | ".join(literal(text) for text in texts)
    conditions = [_length(schema)]
    pattern = schema.get("pattern")
    if has_pattern and isinstance(pattern, str):
        conditions.append(f"/{_whole(pattern)}/")
    return " & ".join(conditions)


def _length(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    if not least and most == "":
        return f"/{_ANYTHING}/"
    return f"/(?s:.{{{least},{most}}})/"


def _whole(pattern: str) -> str:
    """Return an expression that matches whole texts in which the pattern is found."""
    is_first = pattern.startswith("^")
    is_last = pattern.endswith("$") and not _is_escaped(pattern, len(pattern) - 1)
    core = pattern[is_first : len(pattern) - is_last]
    head, tail = "" if is_first else _ANYTHING, "" if is_last else _ANYTHING
    return f"{head}(?:{_escaped_slashes(core)}){tail}"


def _escaped_slashes(pattern: str) -> str:
    escaped, is_free = [], True
    for char in pattern:
        escaped.append("\\/" if char == "/" and is_free else char)
        is_free = char != "\\" or not is_free
    return "".join(escaped)


def _is_escaped(text: str, at: int) -> bool:
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
