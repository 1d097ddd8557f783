"""Values that cross the border of a worker: what may go out, and how what comes in reads."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeGuard


class JsonObject(dict[str, Any]):
    """A JSON object whose keys are attributes too; the methods of `dict` come first."""

    __slots__ = ()

    # Any: as in any JSON object, the type of a field chosen by a string is not known
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"there is no {name!r} here, only {', '.join(map(repr, self)) or 'nothing'}"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to_py(self) -> JsonObject:
        """Return it; projects that ran in Pyodide ask for this."""
        return self


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list, of whatever."""
    return isinstance(value, list)


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is a dict; those that come from JSON have names for keys."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether it maps anything to anything."""
    return isinstance(value, Mapping)


def wrap(value: Any) -> Any:
    """Make every object in a value readable by attribute."""
    if is_dict(value):
        return JsonObject({key: wrap(each) for key, each in value.items()})
    if is_list(value):
        return [wrap(each) for each in value]
    return value


def plain(value: Any, where: str) -> Any:
    """Copy a value as what may leave a worker: JSON's types, bytes and datetimes.

    `where` says of what an error speaks. Raises `TypeError` for all else, tuples included, which
    would arrive as something that they are not.
    """
    match value:
        case None | bool():
            return value
        case float():
            return float(value)
        case Enum():
            return plain(value.value, where)
        case int():
            if -(1 << 63) <= value < 1 << 64:
                return int(value)
            raise TypeError(f"{where}: {value} has more than 64 bits")
        case str():
            return str(value)
        case bytes():
            return bytes(value)
        case datetime.datetime():
            return value
        case _ if is_list(value):
            return [plain(each, where) for each in value]
        case _ if is_mapping(value):
            return _plain_keys(value, where)
        case _:
            raise TypeError(
                f"{where}: a {type(value).__name__} cannot leave a worker; numbers, strings, bytes, "
                "datetimes, lists and dicts can"
            )


def _plain_keys(value: Mapping[Any, Any], where: str) -> dict[str, Any]:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{where}: the keys of a dict are strings, not {type(key).__name__}")
    return {str(key): plain(each, where) for key, each in value.items()}
