"""GLM's tool calls as a grammar: a name, then pairs of a key and a value that its schema describes.

Pairs come in the order of the schema's properties, as those of JSON objects do. A value is raw text
where the schema lets it be a string, as `GlmCallWriter` reads it, and JSON where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from tenantry_runtime.core import Tool

from .json_grammar import Schema, is_closed, json_expression, with_definitions
from .lark import LarkText, literal, one_of, token
from .raw_text import raw_text
from .schema_types import argument_types, resolved

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
KEY_OPEN, KEY_CLOSE = "<arg_key>", "</arg_key>"
VALUE_OPEN, VALUE_CLOSE = "<arg_value>", "</arg_value>"

MAX_SHAPES = 64
"""Alternatives that a schema of arguments may spell out before it counts as saying nothing."""

# what is no JSON but a string, whatever else the value may be
_PLAIN_TEXT = r"/[^\s\-0-9\[{\"](?s:.*)/"
_OTHER_KEY = "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/"


class _Shape(NamedTuple):
    """One of the forms that arguments may take."""

    properties: Mapping[str, Any]
    required: frozenset[str]
    others: Schema | None
    """What a property that is not listed fits; None: there is none."""


def glm_calls(
    lark: LarkText,
    tools: Sequence[Tool],
    ids: Mapping[str, int],
    *,
    has_many: bool,
    is_lenient: Callable[[int], bool],
) -> str:
    """Add the rules of calls; return their expression."""
    # some versions of the format put each part on a line of its own
    lark.rule("line", '"\\n"?')
    calls = []
    for index, tool in enumerate(tools):
        writer = _Arguments(lark, tool.parameters, ids, is_lenient=is_lenient(index))
        name = literal(tool.name)
        calls.append(
            f"{token(ids[CALL_OPEN])} {name} line {writer.rule()} {token(ids[CALL_CLOSE])}"
        )
    call = lark.rule("call", one_of(calls))
    return f"{call} (line {call})*" if has_many else call


class _Arguments:
    """The arguments of one tool."""

    def __init__(
        self, lark: LarkText, parameters: Schema, ids: Mapping[str, int], *, is_lenient: bool
    ) -> None:
        self._lark = lark
        self._root = parameters
        self._ids = ids
        self._is_lenient = is_lenient

    def rule(self) -> str:
        shapes = [self._pairs(shape) for shape in _shapes(self._root, self._root)]
        return self._lark.numbered("arguments", one_of(shapes))

    def _pairs(self, shape: _Shape) -> str:
        pairs = []
        for name, schema in shape.properties.items():
            if schema is False:
                continue
            pair = self._pair(literal(name), self._value(name, schema))
            pairs.append(pair if name in shape.required else f"{pair}?")
        pairs += [
            self._pair(literal(name), self._value(name, shape.others))
            for name in sorted(shape.required - shape.properties.keys())
        ]
        if shape.others is not None:
            listed = "|".join(
                re.escape(name) for name in sorted({*shape.properties, *shape.required})
            )
            but = f" & ~/{listed.replace('/', chr(92) + '/')}/" if listed else ""
            key = self._lark.numbered("KEY", _OTHER_KEY + but)
            pairs.append(f"{self._pair(key, self._value(None, shape.others))}*")
        return " ".join(pairs) or '""'

    def _pair(self, key: str, value: str) -> str:
        ids = self._ids
        pair = (
            f"{token(ids[KEY_OPEN])} {key} {token(ids[KEY_CLOSE])} line "
            f"{token(ids[VALUE_OPEN])} {value} {token(ids[VALUE_CLOSE])} line"
        )
        return self._lark.numbered("pair", pair)

    def _value(self, name: str | None, schema: Any) -> str:
        # a name that no schema has is told as one that is not listed
        types = argument_types(self._root, name or "") or frozenset({"string"})
        known = resolved(schema, self._root)
        known = known if isinstance(known, Mapping) else {}
        if "string" not in types:
            return self._lark.numbered("value", self._json(schema))
        if types == {"string"}:
            return self._text(known)
        return self._lark.numbered("value", one_of(self._either(known, types)))

    def _either(self, schema: Schema, types: frozenset[str]) -> list[str]:
        """Return what fits where the value is a string or something else."""
        branches = [b for word in ("anyOf", "oneOf") for b in _list(schema.get(word))]
        if branches:
            return list(
                chain.from_iterable(
                    self._either(_mapping(resolved(b, self._root)), types) for b in branches
                )
            )
        if "enum" in schema or "const" in schema:
            values = _list(schema.get("enum", [schema.get("const")]))
            return [self._constant(value) for value in values]
        named = schema.get("type", sorted(types))
        expressions = []
        for each in named if isinstance(named, list) else [named]:
            if each != "string":
                expressions.append(
                    self._lark.numbered("value", self._json({**schema, "type": each}))
                )
            elif types == {"string", "null"}:
                expressions.append(self._text(schema))
            else:
                expressions.append(self._lark.rule("PLAIN_TEXT", _PLAIN_TEXT))
        return expressions

    def _constant(self, value: Any) -> str:
        if isinstance(value, str):
            return literal(value) if value else '""'
        return self._lark.numbered("value", self._json({"const": value}))

    def _text(self, schema: Schema) -> str:
        return self._lark.numbered("TEXT", raw_text(schema, has_pattern=not self._is_lenient))

    def _json(self, schema: Any) -> str:
        return json_expression(with_definitions(schema, self._root), is_lenient=self._is_lenient)


def _shapes(schema: Any, root: Schema) -> list[_Shape]:
    """Spell out the alternatives of a schema of an object."""
    known = _mapping(resolved(schema, root))
    others = known.get("additionalProperties")
    base = _Shape(
        properties=_mapping(known.get("properties")),
        required=frozenset(name for name in _list(known.get("required")) if isinstance(name, str)),
        others=None if is_closed(known) else _mapping(others),
    )
    shapes = [base]
    for part in _list(known.get("allOf")):
        shapes = [_both(a, b) for a in shapes for b in _shapes(part, root)][:MAX_SHAPES]
    for word in ("anyOf", "oneOf"):
        if branches := _list(known.get(word)):
            either = [shape for branch in branches for shape in _shapes(branch, root)]
            shapes = [_both(a, b) for a in shapes for b in either][:MAX_SHAPES]
    return shapes


def _both(one: _Shape, other: _Shape) -> _Shape:
    listed = {**one.properties, **other.properties}
    # one that lists nothing leaves it to the other whether there are more
    others = one.others if one.properties or not other.properties else other.others
    return _Shape(listed, one.required | other.required, None if listed else others)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
