"""Expected declarations follow the format of the released tokenizer's encoder."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry_runtime.core import Tool
from tenantry_runtime.text.typescript import MAX_DEPTH, declare_tools, sort_deep


def declared(*tools: Tool) -> str:
    text = declare_tools(tools)
    head, tail = "# Tools\n\n## functions\nnamespace functions {\n", "\n}\n"
    assert text.startswith(head)
    assert text.endswith(tail)
    return text[len(head) : -len(tail)]


def type_of(schema: Any, **root: Any) -> str:
    """Return the type that a required argument `x` of this schema gets."""
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"], **root}
    lines = declared(Tool(name="f", parameters=parameters)).split("\n")
    start = lines.index("type f = (_: {") + 1
    return "\n".join(line.removeprefix("  ") for line in lines[start:-1])


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "string"}, "x: string"),
        ({"type": "integer"}, "x: number"),
        ({"type": "number"}, "x: number"),
        ({"type": "boolean"}, "x: boolean"),
        ({"type": "null"}, "x: null"),
        ({"type": "uuid"}, "x: uuid"),
        ({}, "x: any"),
        (True, "x: any"),
        ({"type": ["string", "null"]}, "x: string | null"),
        ({"type": ["integer", "array"], "items": {"type": "string"}}, "x: number | Array<string>"),
        ({"enum": ["a", "b"]}, 'x: "a" | "b"'),
        ({"type": "string", "enum": ["a"]}, 'x: "a"'),
        ({"enum": [1, 2.5, True, None, 'q"']}, 'x: 1 | 2.5 | True | None | "q""'),
        ({"const": "end"}, 'x: "end"'),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "x: string | number"),
        ({"oneOf": [{"const": "end"}, {"type": "integer"}]}, 'x: "end" | number'),
        ({"allOf": [{"type": "string"}, {"type": "name"}]}, "x: string & name"),
        ({"type": "array"}, "x: Array<any>"),
        ({"type": "array", "items": {"type": "string"}}, "x: Array<string>"),
        ({"type": "object"}, "x: {}"),
        ({"type": "object", "additionalProperties": False}, "x: {\n  [k: string]: never\n}"),
        ({"type": "object", "additionalProperties": True}, "x: {\n  [k: string]: any\n}"),
        (
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "x: {\n  [k: string]: number\n}",
        ),
        ({"properties": {"a": {"type": "string"}}}, "x: {\n  a?: string\n}"),
        ({"$ref": "#/nowhere"}, "x: any"),
        ({"$ref": 5}, "x: any"),
        ({"type": 5}, "x: any"),
        ({"anyOf": "no list", "properties": "no object"}, "x: {}"),
    ],
)
def test_a_schema_becomes_a_type(schema: Any, written: str) -> None:
    assert type_of(schema) == written


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (
            {"type": "string", "description": "The text\nto say."},
            "// The text\n// to say.\nx: string",
        ),
        ({"type": "string", "description": "a\n\nb"}, "// a\n\n// b\nx: string"),
        ({"type": "integer", "minimum": 0, "maximum": 9}, "// maximum: 9, minimum: 0\nx: number"),
        (
            {"type": "string", "pattern": "^a", "minLength": 1, "maxLength": 5},
            "// maxLength: 5, minLength: 1, pattern: ^a\nx: string",
        ),
        (
            {"type": "array", "maxItems": 3, "items": {"type": "string", "description": "d"}},
            "// maxItems: 3\nx: Array<\n  // d\n  string\n>",
        ),
        ({"type": "string", "default": "de"}, '// Default: "de"\nx: string'),
        ({"type": "boolean", "default": False}, "// Default: False\nx: boolean"),
        ({"type": "integer", "default": 5}, "// Default: 5\nx: number"),
        (
            {"type": "string", "description": "d", "maxLength": 5, "default": "v"},
            '// d\n// maxLength: 5\n// Default: "v"\nx: string',
        ),
    ],
)
def test_descriptions_constraints_and_defaults_become_comments(schema: Any, written: str) -> None:
    assert type_of(schema) == written


def test_tools_without_arguments_take_an_empty_object() -> None:
    text = declare_tools([Tool(name="ping"), Tool(name="pong", description="Answer.")])
    assert text == (
        "# Tools\n\n## functions\nnamespace functions {\n"
        "type ping = (_: {}) => any;\n// Answer.\ntype pong = (_: {}) => any;\n}\n"
    )


def test_required_arguments_come_first_and_both_kinds_are_sorted() -> None:
    properties = {name: {"type": "string"} for name in ("d", "b", "c", "a")}
    tool = Tool(
        name="f", parameters={"type": "object", "properties": properties, "required": ["d", "c"]}
    )
    assert declared(tool) == (
        "type f = (_: {\n  c: string,\n  d: string,\n  a?: string,\n  b?: string\n}) => any;"
    )


def test_objects_nest() -> None:
    account = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer", "description": "In years."},
        },
        "required": ["name"],
    }
    tool = Tool(
        name="create",
        parameters={
            "type": "object",
            "properties": {"account": account, "more": {"type": "array", "items": account}},
            "required": ["account"],
        },
    )
    assert declared(tool) == (
        "type create = (_: {\n"
        "  account: {\n    name: string,\n    // In years.\n    age?: number\n  },\n"
        "  more?: Array<{\n      name: string,\n      // In years.\n      age?: number\n    }>\n"
        "}) => any;"
    )


@pytest.mark.parametrize("section", ["$defs", "definitions"])
def test_definitions_become_interfaces(section: str) -> None:
    node = {
        "type": "object",
        "description": "A node.",
        "properties": {
            "id": {"type": "string"},
            "next": {"$ref": f"#/{section}/Node"},
        },
        "required": ["id"],
    }
    tool = Tool(
        name="add",
        description="Add a node.",
        parameters={
            "type": "object",
            section: {"Node": node},
            "properties": {"node": {"$ref": f"#/{section}/Node"}},
            "required": ["node"],
        },
    )
    assert declared(tool) == (
        "// A node.\ninterface Node {\n  id: string,\n  next?: Node\n}\n"
        "// Add a node.\ntype add = (_: {\n  node: Node\n}) => any;"
    )


def test_a_schema_that_contains_itself_is_named() -> None:
    tool = Tool(name="f", parameters={"type": "object", "properties": {"child": {"$ref": "#"}}})
    assert declared(tool) == (
        "interface parameters {\n  child?: parameters\n}\ntype f = (_: parameters) => any;"
    )


def test_deep_schemas_end_in_any() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(MAX_DEPTH + 5):
        schema = {"type": "array", "items": schema}
    text = type_of(schema)
    assert "any" in text
    assert "string" not in text


def test_sorting_keys_reaches_every_level_and_leaves_lists_alone() -> None:
    value = {"b": [{"d": 1, "c": 2}, "z", "a"], "a": None}
    assert list(sort_deep(value)) == ["a", "b"]
    assert [list(sort_deep(value)["b"][0]), sort_deep(value)["b"][1:]] == [["c", "d"], ["z", "a"]]
