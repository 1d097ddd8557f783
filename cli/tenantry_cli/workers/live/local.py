"""A project as it is deployed to the runtime of this machine, rather than to the one it is for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tenantry_cli.workers.api import ControlPlane
from tenantry_cli.workers.config import Project
from tenantry_cli.workers.publish import Wishes, with_namespaces
from tenantry_cli.workers.secrets_file import read_secrets

SECRETS_FILES = (".dev.vars", ".env")
"""The first that is there is read."""


def local_project(plane: ControlPlane, project: Project) -> Project:
    """Return a project without what is of another machine.

    Routes and cron triggers are left as they are; secrets that are required are the developer's to put
    into `.dev.vars`.
    """
    local = replace(
        project,
        routes=None,
        crons=None,
        workers_dev=True,
        required_secrets=(),
    )
    return with_namespaces(plane, local)[0]


def local_wishes(root: Path) -> Wishes:
    """Return the secrets of a developer's own file, which beat variables of the same names."""
    for path in secrets_files(root):
        if path.is_file():
            said = read_secrets(path)
            return Wishes(
                secrets={name: value for name, value in said.items() if value is not None}
            )
    return Wishes()


def secrets_files(root: Path) -> tuple[Path, ...]:
    """Return where secrets may be."""
    return tuple(root / name for name in SECRETS_FILES)
