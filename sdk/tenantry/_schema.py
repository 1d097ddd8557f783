"""JSON Schemas of Python types, as models and grammars take them."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

# what a format's name may hold
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARS = 64


def schema_of(type_: type) -> dict[str, Any]:
    """Describe a type; its own schema is at the top, those of others that it uses in `$defs`.

    Objects take no properties but their own, and class names are left out as titles: a model reads
    them as part of the prompt.
    """
    schema = _plain(msgspec.json.schema(type_))
    definitions = schema.pop("$defs", {})
    reference = schema.pop("$ref", None)
    if reference is not None:
        name = reference.rpartition("/")[2]
        schema = definitions[name]
        # a type that contains itself stays where its references look for it
        if not _refers(definitions, reference):
            del definitions[name]
    return {**schema, "$defs": definitions} if definitions else schema


def json_format(type_: type) -> dict[str, Any]:
    """Ask for answers of a type, as `response_format`."""
    name = _NOT_IN_NAMES.sub("_", getattr(type_, "__name__", "answer"))[:_MAX_NAME_CHARS]
    schema = {"name": name, "schema": schema_of(type_), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


# Any: a JSON Schema
def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Close objects and drop titles, at every depth."""
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" or key == "$defs":
            plain[key] = {name: _plain(each) for name, each in value.items()}
        elif isinstance(value, dict):
            plain[key] = _plain(cast("dict[str, Any]", value))
        elif key in ("anyOf", "prefixItems"):
            plain[key] = [_plain(each) for each in value]
        elif key != "title":
            plain[key] = value
    # formats of msgspec that no grammar knows
    if plain.get("type") == "string" and plain.get("format") == "decimal":
        del plain["format"]
        plain["pattern"] = r"^-?[0-9]{1,30}(\.[0-9]{1,30})?$"
    if plain.pop("contentEncoding", None) == "base64":
        plain["pattern"] = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
    if "properties" in plain:
        plain.setdefault("additionalProperties", False)
    return plain


def _refers(value: object, reference: str) -> bool:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return fields.get("$ref") == reference or any(
            _refers(each, reference) for each in fields.values()
        )
    if isinstance(value, list):
        return any(_refers(each, reference) for each in cast("list[object]", value))
    return False
