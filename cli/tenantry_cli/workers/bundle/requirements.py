"""What a worker depends on, as pyproject.toml says it; the control plane resolves it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tenantry_cli.workers.config import ConfigError

PYPROJECT = "pyproject.toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """`[project] dependencies` and `requires-python`."""

    dependencies: tuple[str, ...] = ()
    """Requirements as PEP 508 has them."""
    requires_python: str = ""
    """"": any."""
    warnings: tuple[str, ...] = ()


def read_requirements(root: Path) -> Requirements:
    """Read them beside the configuration; none where there is no pyproject.toml."""
    warnings = (
        (f"requirements.txt is not read: put its lines into {PYPROJECT}, [project] dependencies",)
        if (root / "requirements.txt").is_file()
        else ()
    )
    path = root / PYPROJECT
    if not path.is_file():
        return Requirements(warnings=warnings)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(PYPROJECT, [f"it is not TOML: {error}"]) from error
    project = document.get("project")
    if not isinstance(project, dict):
        return Requirements(warnings=warnings)
    fields = cast("dict[str, object]", project)
    return Requirements(
        dependencies=_texts(fields.get("dependencies", [])),
        requires_python=_text(fields.get("requires-python", "")),
        warnings=warnings,
    )


def _texts(value: object) -> tuple[str, ...]:
    values = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(each, str) for each in values):
        raise ConfigError(PYPROJECT, ["project.dependencies: it must be a list of texts"])
    return cast("tuple[str, ...]", tuple(values))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(PYPROJECT, ["project.requires-python: it must be a text"])
    return value
