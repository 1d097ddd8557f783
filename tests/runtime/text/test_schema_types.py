from __future__ import annotations

from typing import Any

import pytest

from tenantry_runtime.text.schema_types import argument_types

STRING = {"type": "string"}


def types(schema: Any, **root: Any) -> set[str]:
    return set(argument_types({"properties": {"x": schema}, **root}, "x"))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STRING, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"enum": ["a", None, 1]}, {"string", "null", "integer"}),
        ({"type": "string", "enum": ["a", None]}, {"string"}),
        ({"const": 1.5}, {"number", "integer"}),
        ({"anyOf": [STRING, {"type": "integer"}]}, {"string", "integer"}),
        ({"oneOf": [STRING, {"type": "null"}]}, {"string", "null"}),
        ({"anyOf": [STRING, {}]}, set()),
        ({"allOf": [{"type": ["string", "null"]}, STRING]}, {"string"}),
        ({"allOf": [{"description": "d"}, STRING]}, {"string"}),
        ({"type": "integer", "anyOf": [{"type": "number"}]}, {"integer"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({}, set()),
        ({"type": "uuid"}, set()),
        ({"type": 3, "enum": 3, "anyOf": 3}, set()),
        (True, set()),
        (None, set()),
    ],
)
def test_a_schema_allows_types(schema: Any, expected: set[str]) -> None:
    assert types(schema) == expected


def test_references_are_followed() -> None:
    definitions = {
        "a/b": {"$ref": "#/$defs/c~d"},
        "c~d": {"type": "boolean"},
        "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, STRING]},
    }
    assert types({"$ref": "#/$defs/a~1b"}, **{"$defs": definitions}) == {"boolean"}
    assert types({"$ref": "#/$defs/loop"}, **{"$defs": definitions}) == set()
    assert types({"$ref": "#/$defs/gone"}, **{"$defs": definitions}) == set()
    assert types({"$ref": "http://elsewhere/x"}) == set()


def test_arguments_are_found_in_combined_schemas() -> None:
    branches = [{"properties": {"x": STRING}}, {"$ref": "#/$defs/more"}]
    for keyword in ("allOf", "anyOf", "oneOf"):
        parameters = {
            keyword: branches,
            "$defs": {"more": {"properties": {"y": {"type": "null"}}}},
        }
        assert argument_types(parameters, "x") == {"string"}
        assert argument_types(parameters, "y") == {"null"}
        assert argument_types(parameters, "z") == set()


def test_other_arguments_have_the_type_of_additional_ones() -> None:
    parameters = {"properties": {"x": STRING}, "additionalProperties": {"type": "integer"}}
    assert argument_types(parameters, "y") == {"integer"}
    assert argument_types({**parameters, "additionalProperties": True}, "y") == set()
