"""What a folder says of its worker: wrangler's files, or `[tool.tenantry]` in pyproject.toml."""

from __future__ import annotations

from .errors import ConfigError
from .find import ConfigFile, find_config, locate_config, read_config
from .project import Project, load_project
from .spec import Route, Rule

__all__ = [
    "ConfigError",
    "ConfigFile",
    "Project",
    "Route",
    "Rule",
    "find_config",
    "load_project",
    "locate_config",
    "read_config",
]
