"""Writes a deployment's file: what is as the defaults have it is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from tenantry_runtime.errors import ConfigurationError

from .file import DeploymentFile

Table: TypeAlias = Mapping[str, Any]
"""Any: what TOML has."""

_PRESENT = {("workers",)}
"""Tables that say something by being there."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(file: DeploymentFile, *, comment: str = "") -> str:
    """Return the text of a file, which reads as `file` again.

    Raises `ConfigurationError` for a path that has no text, which TOML cannot hold.
    """
    document: dict[str, Any] = msgspec.to_builtins(file)
    blocks = [*(f"# {line}".rstrip() for line in comment.splitlines())]
    text = "\n".join(blocks) + ("\n\n" if blocks else "") + "\n".join(_table(document, ())).strip()
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"{error.object[error.start : error.end]!r} in a path is no text; rename it"
        raise ConfigurationError(problem) from error
    return text + "\n"


def _table(table: Table, path: tuple[str, ...]) -> Iterator[str]:
    """Yield a table's own lines, then those of the tables below it."""
    # a table in which all is as the defaults have it says nothing
    below = {
        name: value
        for name, value in table.items()
        if _is_below(value) and (value or (*path, name) in _PRESENT)
    }
    for name, value in table.items():
        if not _is_below(value) and value is not None:
            yield f"{_key(name)} = {_value(value)}"
    for name, value in below.items():
        inner = (*path, name)
        header = ".".join(map(_key, inner))
        for each in value if isinstance(value, list | tuple) else [value]:
            yield ""
            yield f"[[{header}]]" if isinstance(value, list | tuple) else f"[{header}]"
            yield from _table(each, inner)


def _is_below(value: object) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list | tuple) and bool(value) and isinstance(value[0], dict)
    )


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            # JSON's escapes are TOML's, which also wants DEL escaped
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            return str(value)
