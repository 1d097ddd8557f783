"""Kimi's tool declarations: each tool as a TypeScript function type, as the model was trained on them.

The format is that of the released tokenizer's own encoder: keys sorted at every level, required
properties before optional ones, descriptions and constraints as comments, definitions as interfaces.
Where that encoder gives up and falls back to JSON for all tools (`oneOf`, `const`, `allOf`, an
unknown reference), this one writes the nearest type instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tenantry_runtime.core import Tool

Schema: TypeAlias = Mapping[str, Any]

INDENT = "  "

MAX_DEPTH = 64
"""Deeper types are `any`; no schema that a person wrote comes near."""

_CONSTRAINTS = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}
_DEFINITIONS = ("$defs", "definitions")


def declare_tools(tools: Sequence[Tool]) -> str:
    """Write the declarations of all tools, as the system turn that declares them wants it."""
    declared = "\n".join(_declare(tool) for tool in tools)
    return f"# Tools\n\n## functions\nnamespace functions {{\n{declared}\n}}\n"


def sort_deep(value: Any) -> Any:
    """Sort the keys of every object in a JSON value."""
    match value:
        case dict():
            return {key: sort_deep(value[key]) for key in sorted(value)}
        case list():
            return [sort_deep(element) for element in value]
        case _:
            return value


def _declare(tool: Tool) -> str:
    parameters: Schema = sort_deep(tool.parameters)
    types = _Types(parameters)
    blocks = [
        _comment(_text(definition, "description"), "")
        + f"interface {name} {types.expression(definition, '', 0)}\n"
        for name, definition in types.definitions.items()
    ]
    arguments = types.object_type(parameters, "", 0)
    if types.refers_to_root:
        blocks.insert(0, f"interface parameters {arguments}\n")
        arguments = "parameters"
    blocks.append(_comment(tool.description or "", ""))
    return "".join(blocks) + f"type {tool.name} = (_: {arguments}) => any;"


class _Types:
    """Types of one tool's schema."""

    def __init__(self, root: Schema) -> None:
        self.refers_to_root = False
        self._references = {
            f"#/{section}/{name}": name
            for section in _DEFINITIONS
            for name in _mapping(root.get(section))
        }
        self.definitions = {
            name: definition
            for section in _DEFINITIONS
            for name, definition in _mapping(root.get(section)).items()
        }

    def expression(self, schema: object, indent: str, depth: int) -> str:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return "any"
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        for keyword, operator in (("anyOf", " | "), ("oneOf", " | "), ("allOf", " & ")):
            if branches := _sequence(schema.get(keyword)):
                return operator.join(self.expression(b, indent, depth + 1) for b in branches)
        if "enum" in schema:
            return " | ".join(_literal(value) for value in _sequence(schema["enum"])) or "never"
        if "const" in schema:
            return _literal(schema["const"])
        match schema.get("type"):
            case list() as names:
                branches = [{**schema, "type": name} for name in names]
                return " | ".join(self.expression(b, indent, depth + 1) for b in branches) or "any"
            case "object":
                return self.object_type(schema, indent, depth)
            case "array":
                return self._array_type(schema, indent, depth)
            case "integer":
                return "number"
            case str() as name:
                return name
            case _:
                return self.object_type(schema, indent, depth) if "properties" in schema else "any"

    def object_type(self, schema: Schema, indent: str, depth: int) -> str:
        inner = indent + INDENT
        properties = _mapping(schema.get("properties"))
        required = {name for name in _sequence(schema.get("required")) if isinstance(name, str)}
        names = sorted(properties, key=lambda name: (name not in required, name))
        fields = [
            _comments(properties[name], inner)
            + _default(properties[name], inner)
            + f"{inner}{name}{'' if name in required else '?'}: "
            + self.expression(properties[name], inner, depth + 1)
            for name in names
        ]
        match schema.get("additionalProperties"):
            case True:
                fields.append(f"{inner}[k: string]: any")
            case False:
                fields.append(f"{inner}[k: string]: never")
            case Mapping() as values:
                fields.append(f"{inner}[k: string]: {self.expression(values, inner, depth + 1)}")
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}" if fields else "{}"

    def _array_type(self, schema: Schema, indent: str, depth: int) -> str:
        inner = indent + INDENT
        items = schema.get("items")
        element = self.expression(items, inner, depth + 1)
        comments = _comments(items, inner)
        return f"Array<\n{comments}{inner}{element}\n{indent}>" if comments else f"Array<{element}>"

    def _reference(self, reference: object) -> str:
        if reference == "#":
            self.refers_to_root = True
            return "parameters"
        return self._references.get(reference, "any") if isinstance(reference, str) else "any"


def _comments(schema: object, indent: str) -> str:
    if not isinstance(schema, Mapping):
        return ""
    kind = schema.get("type")
    keywords = _CONSTRAINTS.get(kind, ()) if isinstance(kind, str) else ()
    constraints = [f"{key}: {_plain(schema[key])}" for key in keywords if key in schema]
    return _comment(_text(schema, "description"), indent) + _comment(", ".join(constraints), indent)


def _comment(text: str, indent: str) -> str:
    if not text:
        return ""
    return "".join(f"{indent}// {line}\n" if line else "\n" for line in text.split("\n"))


def _default(schema: object, indent: str) -> str:
    if not isinstance(schema, Mapping) or schema.get("default") is None:
        return ""
    default = schema["default"]
    # booleans are Python's in this format, here and in enums
    written = str(default) if isinstance(default, bool) else _json(default)
    return f"{indent}// Default: {written}\n"


def _literal(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case bool() | None:
            return str(value)
        case _:
            return _json(value)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(schema: object, key: str) -> str:
    value = schema.get(key) if isinstance(schema, Mapping) else None
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []
