"""Keys that nobody reads, and which one was meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, cast

import msgspec
from msgspec import inspect


def unknown_key(path: str, key: str, known: Iterable[str]) -> str:
    """Return the warning of a key that is not among the known ones."""
    near = get_close_matches(key, sorted(known), n=1, cutoff=0.6)
    named = f"{path}.{key}" if path else key
    return f"{named} is not a key that is known" + (f"; is it {near[0]!r}?" if near else "")


def nested_unknown_keys(
    values: Mapping[str, object], struct: type[msgspec.Struct]
) -> Iterator[str]:
    """Yield the warnings of unknown keys below the first level of what `struct` describes."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        if field.encode_name in values:
            yield from _below(field.encode_name, values[field.encode_name], field.type)


def _below(path: str, value: object, type_info: inspect.Type) -> Iterator[str]:
    if isinstance(type_info, inspect.UnionType):
        for choice in type_info.types:
            yield from _below(path, value, choice)
    elif isinstance(type_info, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name for field in type_info.fields}
        # Any: JSON of the user's
        for key in cast("dict[str, Any]", value):
            if key not in known:
                yield unknown_key(path, key, known)
    elif isinstance(type_info, inspect.VarTupleType) and isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            yield from _below(f"{path}[{index}]", each, type_info.item_type)
