"""JSON schemas as llguidance takes them: narrowed where a model could go on for ever.

| where a schema says nothing of | the model may write |
|---|---|
| white space | at most one space or one line break with its indent between two tokens |
| a number's bounds, multiples | integers that a float64 holds exactly; nine decimals |
| other properties than those it lists | no others |
| an object's properties at all | values nested eight deep |

What is written still fits the schema as it is. All but the first is left as it is where several
schemas apply to one value, as one that is narrower would forbid what another asks for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from .schema_types import pointed_at

Schema: TypeAlias = Mapping[str, Any]

WHITE_SPACE = r" |\n {0,32}"
MAX_INTEGER = 2**53 - 1
DECIMALS = 1e-9
MAX_DEPTH = 8

ANY_OBJECT: Schema = {"type": "object"}

_COMBINING = frozenset(
    {"allOf", "anyOf", "oneOf", "$ref", "$dynamicRef", "if", "then", "else", "not"}
)
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMAS = (
    "items",
    "prefixItems",
    "additionalProperties",
    "contains",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
)
# they say nothing of which values fit, and are much of what there is to read
_REMARKS = frozenset(
    {
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "nullable",
        "$comment",
        "x-guidance",
    }
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_UNBINDING = frozenset({"$schema", "$id", "$defs", "definitions"})


class CircularReference(ValueError):
    """A reference that leads to itself, and so to no schema."""


def json_expression(schema: Schema | bool, *, is_lenient: bool) -> str:
    """Return the Lark expression of the values that fit.

    `is_lenient`: what the compiler does not know of schemas is no error, and does not bind the model.
    """
    known: dict[str, Any] = {} if isinstance(schema, bool) else dict(schema)
    _check_references(known)
    if not any(_names_a_document(each) for each in _walk(known)):
        # a name that nobody uses, and that need be none
        known.pop("$id", None)
    known = _bare(known, is_alone=not _combines(known))
    if known == ANY_OBJECT:
        known = _nested_values()
    # a schema of its own making does not decide how it is compiled
    options: dict[str, Any] = {"whitespace_pattern": WHITE_SPACE}
    if is_lenient:
        options["lenient"] = True
    return "%json " + json.dumps({**known, "x-guidance": options}, ensure_ascii=False)


def object_schema(schema: Schema) -> Schema:
    """Return the schema of a tool's arguments as one of objects, which it need not say."""
    return schema if schema.keys() & (_COMBINING | {"type"}) else {**schema, "type": "object"}


def with_definitions(schema: Any, root: Schema) -> Schema:
    """Return a part of a schema as one of its own, with what it may refer to."""
    part = dict(schema) if isinstance(schema, Mapping) else {}
    shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return {**shared, **part}


def _combines(schema: Any) -> bool:
    """Return whether several schemas apply to one value anywhere."""
    for each in _walk(schema):
        binding = each.keys() - _REMARKS - _UNBINDING
        combining = binding & _COMBINING
        if combining and (len(binding) > 1 or len(each.get("allOf") or ()) > 1):
            return True
    return False


def _names_a_document(schema: Schema) -> bool:
    reference = schema.get("$ref", "#")
    return isinstance(reference, str) and not reference.startswith("#")


def _check_references(root: Schema) -> None:
    """Raise `CircularReference` where references lead in a circle: the compiler does not notice."""
    sound: set[str] = set()
    for each in _walk(root):
        passed: set[str] = set()
        place: object = each
        while isinstance(place, Mapping) and isinstance(reference := place.get("$ref"), str):
            if reference in passed:
                raise CircularReference(f"$ref {reference[:80]!r} refers to itself")
            if reference in sound:
                break
            passed.add(reference)
            place = pointed_at(reference, root)
        sound |= passed


def _walk(schema: Any) -> Iterator[Schema]:
    """Yield a schema and all within it."""
    unseen = [schema]
    while unseen:
        each = unseen.pop()
        if isinstance(each, list):
            unseen += each
        if not isinstance(each, Mapping):
            continue
        yield each
        for name in _NAMED_SCHEMAS:
            if isinstance(named := each.get(name), Mapping):
                unseen += named.values()
        unseen += [each[name] for name in _SCHEMAS if name in each]


def _bare(schema: Any, *, is_alone: bool) -> Any:
    """Return what of a schema binds; `is_alone`: narrowed, as no other applies to the same value."""
    if isinstance(schema, list):
        return [_bare(each, is_alone=is_alone) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    bare = {name: value for name, value in schema.items() if name not in _REMARKS}
    for name in _NAMED_SCHEMAS:
        if isinstance(named := bare.get(name), Mapping):
            bare[name] = {key: _bare(each, is_alone=is_alone) for key, each in named.items()}
    for name in _SCHEMAS:
        if name in bare:
            bare[name] = _bare(bare[name], is_alone=is_alone)
    if is_alone and is_closed(schema):
        bare["additionalProperties"] = False
    return _with_bounds(bare) if is_alone else bare


def _with_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    types = schema.get("type")
    types = types if isinstance(types, list) else [types]
    if not {"integer", "number"} & {each for each in types if isinstance(each, str)}:
        return schema
    if schema.keys() & {"enum", "const"}:
        return schema
    added: dict[str, Any] = {}
    bounds = [schema[name] for name in _BOUNDS if _is_number(schema.get(name))]
    # a bound of its own may be beyond the other one
    widest = max([MAX_INTEGER, *(2 * abs(bound) for bound in bounds)])
    if not schema.keys() & {"minimum", "exclusiveMinimum"}:
        added["minimum"] = -widest
    if not schema.keys() & {"maximum", "exclusiveMaximum"}:
        added["maximum"] = widest
    if "number" in types and "multipleOf" not in schema:
        added["multipleOf"] = DECIMALS
    return {**schema, **added}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nested_values() -> dict[str, Any]:
    """Return a schema of any object, of a bounded depth."""
    levels: dict[str, Any] = {}
    plain = [{"type": ["string", "boolean", "null"]}, _with_bounds({"type": "number"})]
    for depth in range(1, MAX_DEPTH + 1):
        inner = {"$ref": f"#/$defs/level_{depth + 1}"}
        nested = [
            {"type": "array", "items": inner},
            {"type": "object", "additionalProperties": inner},
        ]
        levels[f"level_{depth}"] = {"anyOf": plain + nested if depth < MAX_DEPTH else plain}
    return {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/level_1"},
        "$defs": levels,
    }


def is_closed(schema: Schema) -> bool:
    """Return whether an object has the properties that its schema lists and no others."""
    if "additionalProperties" in schema:
        return schema["additionalProperties"] is False
    properties, required = schema.get("properties"), schema.get("required")
    return (
        isinstance(properties, Mapping)
        and not schema.keys() & {"patternProperties", "minProperties", "unevaluatedProperties"}
        and set(required if isinstance(required, list) else ()) <= properties.keys()
    )
