"""Files of secrets: JSON, or `NAME=value` lines as in .env files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import cast

import click

_LINE = re.compile(
    r"""
    \s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=[^\S\n]*
    (?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' | (?P<bare>[^\n#]*(?:\#(?<!\s\#)[^\n#]*)*) )
    [^\S\n]*(?:\#[^\n]*)?(?:\n|$)
    """,
    re.VERBOSE,
)
_NOTHING = re.compile(r"\s*(?:#[^\n]*)?(?:\n|$)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def read_secrets(path: Path) -> dict[str, str | None]:
    """Return what a file says. Raises ClickException, which never shows a value."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        # from None: the error has the text in it
        raise click.ClickException(f"{path} is not UTF-8 text") from None
    return parse_secrets(text, str(path))


def parse_secrets(text: str, source: str) -> dict[str, str | None]:
    """Return values by names; None, which only JSON can say, deletes. Never shows a value."""
    if text.lstrip().startswith("{"):
        return _from_json(text, source)
    return dict(parse_dotenv(text, source))


def parse_dotenv(text: str, source: str) -> dict[str, str]:
    """Parse `NAME=value` lines; a value in double quotes has escapes, and may be of many lines."""
    text = text.replace("\r\n", "\n")
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        if line := _LINE.match(text, position):
            values[line["name"]] = _value(line)
        elif not (line := _NOTHING.match(text, position)):
            number = text.count("\n", 0, position) + 1
            raise click.ClickException(f"{source}: line {number} is not NAME=value")
        position = line.end()
    return values


def _value(line: re.Match[str]) -> str:
    if line["double"] is not None:
        return re.sub(r"\\(.)", lambda each: _ESCAPES.get(each[1], each[1]), line["double"])
    if line["single"] is not None:
        return line["single"]
    return line["bare"].strip()


def _from_json(text: str, source: str) -> dict[str, str | None]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        # from None: the error has the text in it
        raise click.ClickException(
            f"{source}: line {error.lineno}, column {error.colno}: it is not JSON: {error.msg}"
        ) from None
    values = cast("dict[str, object]", document)
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise click.ClickException(f"{source}: {name} must be a text, or null to delete it")
    return cast("dict[str, str | None]", values)
