"""Which JSON types a schema lets an argument have.

GLM writes argument values as raw text, so the schema alone tells the string 5 from the number 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

JSON_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

MAX_DEPTH = 32
"""References and combinations followed before a schema counts as saying nothing."""


def argument_types(parameters: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return the types that argument `name` may have; empty where the schema does not say."""
    schema = _argument_schema(parameters, name, parameters, 0)
    return _types(schema, parameters, 0)


def resolved(schema: object, root: Mapping[str, Any]) -> object:
    """Follow a schema's references within `root`; None where they lead nowhere."""
    for _ in range(MAX_DEPTH):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = pointed_at(schema["$ref"], root)
    return None


def pointed_at(reference: str, root: Mapping[str, Any]) -> object:
    """Return what a reference within the document leads to (RFC 6901, section 6); None: nowhere."""
    if not reference.startswith("#"):
        return None
    found: object = root
    for step in unquote(reference.removeprefix("#")).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def type_of(value: object) -> str:
    """Name the JSON type of a parsed value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _argument_schema(schema: object, name: str, root: Mapping[str, Any], depth: int) -> object:
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in _list(schema.get(keyword)):
            found = _argument_schema(branch, name, root, depth + 1)
            if found is not None:
                return found
    return schema.get("additionalProperties")


def _types(schema: object, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return frozenset()
    said: list[frozenset[str]] = []
    if "type" in schema:
        names = schema["type"]
        said.append(_known(names if isinstance(names, list) else [names]))
    if "enum" in schema:
        said.append(frozenset(map(type_of, _list(schema["enum"]))))
    if "const" in schema:
        said.append(frozenset({type_of(schema["const"])}))
    for keyword in ("anyOf", "oneOf"):
        branches = [_types(branch, root, depth + 1) for branch in _list(schema.get(keyword))]
        # a branch that says nothing allows everything
        said.append(frozenset().union(*branches) if all(branches) else frozenset())
    said.extend(_types(branch, root, depth + 1) for branch in _list(schema.get("allOf")))
    if "properties" in schema:
        said.append(frozenset({"object"}))
    if "items" in schema:
        said.append(frozenset({"array"}))
    return _intersection(said)


def _intersection(said: Sequence[frozenset[str]]) -> frozenset[str]:
    allowed = JSON_TYPES
    for types in filter(None, said):
        # an integer is a number, so a schema that says number keeps one that says integer
        widened = types | {"integer"} if "number" in types else types
        allowed = allowed & widened or allowed
    return frozenset() if allowed == JSON_TYPES else allowed


def _known(names: Sequence[object]) -> frozenset[str]:
    return frozenset(name for name in names if isinstance(name, str)) & JSON_TYPES


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()
