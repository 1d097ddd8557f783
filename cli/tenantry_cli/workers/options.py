"""Options that commands of workers share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .output import Screen

if TYPE_CHECKING:
    # what they import takes longer than `--help` should
    from .api import ControlPlane
    from .config import Project

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which configuration, environment and worker a command line means."""

    config: Path | None
    environment: str | None
    name: str | None

    def project(self, screen: Screen) -> Project:
        """Read the configuration, and warn of what is odd in it."""
        project = self.project_or_none()
        if project is None:
            raise click.UsageError(
                f"there is no worker here: neither wrangler.jsonc, wrangler.json, wrangler.toml nor "
                f"[tool.tenantry] in pyproject.toml in {Path.cwd()} or above it. `workerctl init` makes "
                "one; --config names one"
            )
        for warning in project.warnings:
            screen.warn(f"{project.source}: {warning}")
        return project

    def worker(self, argument: str | None = None) -> str:
        """Return a worker's name: the argument's, `--name`'s, or the configuration's."""
        if argument or self.name:
            return argument or str(self.name)
        project = self.project_or_none()
        if project is None:
            raise click.UsageError(
                "which worker? there is no configuration in this folder or above it: say --name"
            )
        return project.name

    def project_or_none(self) -> Project | None:
        """Read the configuration, if there is one."""
        from .config import find_config, load_project, read_config

        file = read_config(self.config) if self.config else find_config(Path.cwd())
        if file is None:
            return None
        return load_project(file, environment=self.environment, name=self.name)


def config_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--config` and `--env` without `--name`, as `chosen`."""
    return _chosen(command, has_name=False)


def worker_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--config`, `--env` and `--name`, as `chosen`."""
    return _chosen(command, has_name=True)


def json_option(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--json`, as `screen`."""

    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    # Any: as click calls it
    def with_screen(*args: Any, as_json: bool, **options: Any) -> T:
        return command(*args, screen=Screen(as_json=as_json), **options)

    return with_screen


def listing_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--format` and `--json`, as `screen`: JSON in a pipe, a table on a terminal."""

    @click.option(
        "--format",
        "wanted",
        type=click.Choice(["json", "pretty"]),
        help="Default: pretty on a terminal, json in a pipe.",
    )
    @click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
    @functools.wraps(command)
    # Any: as click calls it
    def with_screen(*args: Any, wanted: str | None, as_json: bool, **options: Any) -> T:
        is_pretty = wanted == "pretty" or (wanted is None and sys.stdout.isatty())
        return command(*args, screen=Screen(as_json=as_json or not is_pretty), **options)

    return with_screen


def yes_option(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--yes`."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(command)


def connect() -> ControlPlane:
    """Open the control plane that the user is signed in to."""
    from .access import sign_in
    from .api import ControlPlane

    return ControlPlane(sign_in())


def _chosen(command: Callable[..., T], *, has_name: bool) -> Callable[..., T]:
    @click.option(
        "--config",
        "-c",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The configuration, instead of the nearest one.",
    )
    @click.option("--env", "-e", "environment", metavar="NAME", help="Its env.NAME section.")
    @functools.wraps(command)
    # Any: as click calls it
    def with_chosen(*args: Any, config: Path | None, environment: str | None, **options: Any) -> T:
        name = options.pop("worker_name") if has_name else None
        chosen = Chosen(config=config, environment=environment, name=name)
        return command(*args, chosen=chosen, **options)

    if has_name:
        return click.option("--name", "worker_name", metavar="WORKER", help="The worker's name.")(
            with_chosen
        )
    return with_chosen
