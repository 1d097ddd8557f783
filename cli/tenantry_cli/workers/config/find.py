"""Which file configures a worker, and what is in it before anything is made of it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import click

from .errors import ConfigError
from .jsonc import decode_jsonc

FILE_NAMES = ("wrangler.json", "wrangler.jsonc", "wrangler.toml")
PYPROJECT = "pyproject.toml"
TABLE = "[tool.tenantry]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A file that was read."""

    path: Path
    values: dict[str, object]
    project_name: str = ""
    """`[project] name`, where the file is pyproject.toml."""
    ignored: tuple[Path, ...] = ()
    """Other files that say something too, and are not asked."""

    @property
    def source(self) -> str:
        """What messages call it."""
        return f"{self.path.name} {TABLE}" if self.path.name == PYPROJECT else self.path.name


def find_config(start: Path) -> ConfigFile | None:
    """Read the nearest configuration in `start` or above it; None if there is none."""
    paths = locate_config(start)
    if not paths:
        return None
    return replace(read_config(paths[0]), ignored=paths[1:])


def locate_config(start: Path) -> tuple[Path, ...]:
    """Return the configurations of the nearest folder that has any, the one that counts first."""
    start = start.absolute()
    for folder in (start, *start.parents):
        named = [path for name in FILE_NAMES if (path := folder / name).is_file()]
        pyproject = folder / PYPROJECT
        if pyproject.is_file() and _table(pyproject) is not None:
            named.append(pyproject)
        if named:
            return tuple(named)
    return ()


def read_config(path: Path) -> ConfigFile:
    """Read one file. Raises ConfigError where it is not there, or is not what its name says."""
    if not path.is_file():
        raise click.ClickException(f"there is no file {path}")
    if path.name == PYPROJECT:
        table = _table(path)
        if table is None:
            raise ConfigError(
                path.name, [f"it has no {TABLE}: add it, or configure the worker in wrangler.jsonc"]
            )
        return ConfigFile(path=path, values=table, project_name=_project_name(path))
    values = _decode_toml(path) if path.suffix == ".toml" else _decode_json(path)
    return ConfigFile(path=path, values=values)


def _decode_json(path: Path) -> dict[str, object]:
    try:
        document = decode_jsonc(_text(path))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(path.name, [f"{where}: it is not JSON: {error.msg}"]) from error
    if not isinstance(document, dict):
        raise ConfigError(path.name, ["it must be an object: { … }"])
    return cast("dict[str, object]", document)


def _decode_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path.name, [f"it is not TOML: {error}"]) from error


def _table(pyproject: Path) -> dict[str, object] | None:
    tools = _decode_toml(pyproject).get("tool")
    table = cast("dict[str, object]", tools).get("tenantry") if isinstance(tools, dict) else None
    return cast("dict[str, object]", table) if isinstance(table, dict) else None


def _project_name(pyproject: Path) -> str:
    project = _decode_toml(pyproject).get("project")
    name = cast("dict[str, object]", project).get("name") if isinstance(project, dict) else None
    return name if isinstance(name, str) else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(path.name, ["it is not UTF-8 text"]) from error
