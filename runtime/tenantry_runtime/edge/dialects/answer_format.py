"""What an answer has to be: which functions it calls, and what form its text has.

| dialect | `tool_choice` | form of the text |
|---|---|---|
| chat | `{"type": "function", "function": {"name": …}}` | `response_format`; the schema in an envelope with `schema`, or bare |
| responses | `{"type": "function", "name": …}` | `text.format`, with `schema` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from tenantry_runtime.core import JsonFormat, ResponseFormat, TextFormat, Tool, ToolChoice
from tenantry_runtime.errors import InvalidInput

from .parameters import Input, invalid

ChoiceMode: TypeAlias = Literal["none", "auto", "required"]


class FunctionName(Input, frozen=True, kw_only=True):
    name: str


class NamedFunction(Input, frozen=True, kw_only=True, tag_field="type", tag="function"):
    """One function, in the chat API's form, or flat as the responses API has it."""

    function: FunctionName | None = None
    name: str | None = None


# known only to be refused by name
class CustomChoice(msgspec.Struct, tag_field="type", tag="custom"):
    pass


class AllowedTools(msgspec.Struct, tag_field="type", tag="allowed_tools"):
    pass


ToolChoiceInput: TypeAlias = ChoiceMode | NamedFunction | CustomChoice | AllowedTools


class PlainText(Input, frozen=True, kw_only=True, tag_field="type", tag="text"):
    pass


class JsonObject(Input, frozen=True, kw_only=True, tag_field="type", tag="json_object"):
    pass


class JsonSchema(Input, frozen=True, kw_only=True, tag_field="type", tag="json_schema"):
    # Any: a JSON schema, or the envelope around it; none: any object
    json_schema: dict[str, Any] | None = None


ResponseFormatInput: TypeAlias = PlainText | JsonObject | JsonSchema


class SchemaEnvelope(Input, frozen=True, kw_only=True):
    """OpenAI's form of a schema."""

    name: str = ""
    description: str | None = None
    # Any: a JSON schema
    schema: dict[str, Any] | None = None
    strict: bool | None = None


def tool_choice(choice: ToolChoiceInput | None, tools: Sequence[Tool]) -> ToolChoice:
    """Translate a choice; raise `InvalidInput` where it asks for what there is not."""
    match choice:
        case None | "auto":
            return ToolChoice()
        case "none":
            return ToolChoice(mode="none")
        case "required":
            if not tools:
                raise InvalidInput("tool_choice", "'required' needs 'tools'")
            return ToolChoice(mode="required")
        case NamedFunction():
            return ToolChoice(mode="required", name=_named(choice, tools))
        case CustomChoice() | AllowedTools():
            kind = choice.__struct_config__.tag
            raise InvalidInput("tool_choice.type", f"{kind!r} is not supported")


def response_format(asked: ResponseFormatInput | None) -> ResponseFormat:
    """Translate the chat API's form."""
    match asked:
        case None | PlainText():
            return TextFormat()
        case JsonObject():
            return JsonFormat()
        case JsonSchema(json_schema=schema):
            return _schema(schema or {}, "response_format.json_schema")


def _named(choice: NamedFunction, tools: Sequence[Tool]) -> str:
    if (choice.function is None) == (choice.name is None):
        raise InvalidInput("tool_choice", "must have either 'function' or 'name'")
    name = choice.name if choice.function is None else choice.function.name
    assert name is not None
    if not any(tool.name == name for tool in tools):
        raise InvalidInput("tool_choice", f"{name[:100]!r} is none of the tools")
    return name


def _schema(given: dict[str, Any], path: str) -> JsonFormat:
    """Tell an envelope from a bare schema: `schema` is no word of JSON schemas."""
    is_envelope = "schema" in given or given.keys() <= {"name", "description", "strict"}
    if not is_envelope:
        return JsonFormat(schema=given)
    try:
        envelope = msgspec.convert(given, SchemaEnvelope)
    except msgspec.ValidationError as error:
        raise invalid(str(error), within=path) from error
    return enveloped(envelope)


def enveloped(envelope: SchemaEnvelope) -> JsonFormat:
    """Take the schema out of its envelope. One without a schema asks for any object."""
    return JsonFormat(
        schema=envelope.schema, name=envelope.name, strict=envelope.strict is not False
    )
