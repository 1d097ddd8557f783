"""Turns what a decoder says of a TOML document into a key and what to do about it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.inspect import (
    CollectionType,
    DictType,
    ListType,
    LiteralType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

Step: TypeAlias = str | int
"""Of a path: a key of a table, or a place in a list."""

MAX_SHOWN_CHARS = 60

ANY_KEY = "[...]"
"""In a decoder's path: some key of a table that may have any."""

_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `([^`]*)`(?P<rest>.*?)(?:, got `[^`]*`)?", re.DOTALL)

_NOUNS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def explain(error: msgspec.ValidationError, document: object, type_: type[Any]) -> tuple[str, str]:
    """Return the key at fault, empty for the whole file, and the problem with what to do."""
    message = _MESSAGE.fullmatch(str(error))
    assert message is not None
    steps: list[Step] = [
        name or int(place)
        for name, place in _STEP.findall((message["path"] or "").replace(ANY_KEY, ""))
    ]
    problem = message["problem"]
    if (unknown := _UNKNOWN.fullmatch(problem)) is not None:
        known = _keys(_type_at(type_info(type_), steps))
        return key([*steps, unknown[1]]), f"unknown key; {suggestion(unknown[1], known)}"
    if (missing := _MISSING.fullmatch(problem)) is not None:
        return key([*steps, missing[1]]), "is missing, and has no default"
    return key(steps), _wrong_value(problem, _value_at(document, steps), type_, steps)


def key(steps: Iterable[Step]) -> str:
    """Return a path as TOML's readers write it: `nodes[1].members[0]`."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return which known name is meant by another, or all of them."""
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower()[:MAX_SHOWN_CHARS], lowered, n=1, cutoff=0.6)
    return f"did you mean {lowered[close[0]]}?" if close else f"known here: {', '.join(known)}"


def shown(value: object) -> str:
    """Return a value as TOML has it, or what it is where that would be long."""
    match value:
        case bool():
            return str(value).lower()
        case str() if "://" in value:
            # it may hold a password
            return "a URL"
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return text if len(text) <= MAX_SHOWN_CHARS else f'{text[:MAX_SHOWN_CHARS]}…"'
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return str(value)


def _wrong_value(problem: str, value: object, type_: type[Any], steps: Sequence[Step]) -> str:
    found = _type_at(type_info(type_), steps)
    if isinstance(found, LiteralType):
        allowed = " or ".join(shown(choice) for choice in found.values)
        return f"must be {allowed}, not {shown(value)}"
    expected = _EXPECTED.fullmatch(problem)
    if expected is None:
        return f"{problem}; found {shown(value)}"
    names = [name for name in expected[1].split(" | ") if name != "null"]
    nouns = " or ".join(_NOUNS.get(name, name) for name in names)
    if "length >= 1" in expected["rest"]:
        return "must not be empty"
    if isinstance(found, DictType) and isinstance(value, dict):
        return f"must be a table of {nouns.split()[-1]}s, but holds {_misfit(value, names)}"
    return f"must be {nouns}{expected['rest']}, not {shown(value)}"


def _misfit(table: dict[str, object], names: Sequence[str]) -> str:
    types = {"str": str, "int": int, "float": float, "bool": bool}
    allowed = tuple(types[name] for name in names)
    return shown(next(value for value in table.values() if not isinstance(value, allowed)))


def _type_at(root: Type, steps: Sequence[Step]) -> Type:
    found = _concrete(root)
    for step in steps:
        match found:
            case StructType(fields=fields):
                found = next(field.type for field in fields if field.encode_name == step)
            case VarTupleType() | ListType() | CollectionType():
                found = found.item_type
            case DictType(value_type=value_type):
                found = value_type
        found = _concrete(found)
    return found


def _concrete(found: Type) -> Type:
    """Return what a type is when it is set."""
    if not isinstance(found, UnionType):
        return found
    set_types = [member for member in found.types if type(member).__name__ != "NoneType"]
    return set_types[0]


def _keys(found: Type) -> list[str]:
    return [field.encode_name for field in found.fields] if isinstance(found, StructType) else []


def _value_at(document: Any, steps: Sequence[Step]) -> object:
    # Any: as TOML has it
    value = document
    for step in steps:
        value = value[step]
    return value
