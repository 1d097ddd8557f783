"""What `deploy` and `versions upload` have in common: their options, and what comes before uploading."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tenantry_cli.workers.options import Chosen, json_option, worker_options
from tenantry_cli.workers.output import Screen

if TYPE_CHECKING:
    from tenantry_cli.workers.bundle import Bundle
    from tenantry_cli.workers.config import Project
    from tenantry_cli.workers.publish import Wishes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command line says of an upload; fields are named as the options."""

    script: Path | None
    dry_run: bool
    outdir: Path | None
    variables: tuple[str, ...]
    tag: str | None
    message: str | None
    keep_vars: bool
    secrets_file: Path | None
    compatibility_date: str | None
    compatibility_flags: tuple[str, ...]

    def project(self, chosen: Chosen, screen: Screen) -> Project:
        """Return the configured project, or one of MAIN and `--name` alone."""
        if self.script is None:
            return chosen.project(screen)
        if not self.script.is_file():
            raise click.UsageError(f"there is no file {self.script}")
        from tenantry_cli.workers.config import Project

        main = self.script.absolute()
        if chosen.project_or_none() is not None:
            return replace(chosen.project(screen), main=main)
        if chosen.name is None:
            raise click.UsageError("without a configuration, say what the worker is called: --name")
        return Project(root=Path.cwd(), source="the command line", name=chosen.name, main=main)

    def wishes(self) -> Wishes:
        """Return what is asked beyond the configuration; reads the file of secrets."""
        from tenantry_cli.workers.publish import Wishes

        return Wishes(
            tag=self.tag,
            message=self.message,
            keep_vars=self.keep_vars,
            variables=_variables(self.variables),
            secrets=_secrets(self.secrets_file),
            compatibility_date=self.compatibility_date,
            compatibility_flags=self.compatibility_flags,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A bundle that has been shown, and can be uploaded."""

    project: Project
    wishes: Wishes
    bundle: Bundle
    # Any: JSON
    document: dict[str, Any]
    """The bundle's part of what `--json` prints."""


def prepare(asked: Asked, project: Project, screen: Screen) -> Prepared | None:
    """Make the bundle and show it; return None, with all said, where the command line wants no more."""
    from tenantry_cli.workers.bundle import make_bundle, write_bundle
    from tenantry_cli.workers.publish import report

    wishes = asked.wishes()
    bundle = make_bundle(project)
    report.show_bundle(bundle, screen)
    if asked.outdir is not None:
        write_bundle(bundle, asked.outdir)
    document = report.bundle_document(project, bundle, wishes)
    if not asked.dry_run:
        return Prepared(
            project=project,
            wishes=wishes,
            bundle=bundle,
            document={**document, "dry_run": False},
        )
    report.show_bindings(project, wishes, screen)
    screen.say("--dry-run: exiting now.")
    screen.result({**document, "dry_run": True})
    return None


def upload_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add the options, as `asked`, and those of all commands for workers."""

    @functools.wraps(command)
    # Any: as click calls it
    def with_asked(*args: Any, **options: Any) -> T:
        asked = Asked(**{name: options.pop(name) for name in Asked.__dataclass_fields__})
        return command(*args, asked=asked, **options)

    decorated: Callable[..., T] = with_asked
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return worker_options(json_option(decorated))


_OPTIONS = (
    click.argument(
        "script",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="[MAIN]",
        required=False,
    ),
    click.option("--dry-run", is_flag=True, help="Only show what would be uploaded."),
    click.option(
        "--outdir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Write the files that are uploaded there too.",
    ),
    click.option(
        "--var", "variables", multiple=True, metavar="KEY:VALUE", help="A variable; repeat it."
    ),
    click.option("--tag", help="A label of the version."),
    click.option("--message", "-m", help="What changed."),
    click.option("--keep-vars", is_flag=True, help="Keep variables that are set elsewhere."),
    click.option(
        "--secrets-file",
        type=click.Path(dir_okay=False, exists=True, path_type=Path),
        help="Secrets to deploy along: JSON, or NAME=value lines.",
    ),
    click.option("--compatibility-date", metavar="DATE", help="Instead of the configured one."),
    click.option("--compatibility-flags", multiple=True, metavar="FLAG", help="Likewise."),
)


def warn_of_account(project: Project, account_id: str, screen: Screen) -> None:
    """Warn where the configuration names another account than the token's."""
    if project.account_id is not None and project.account_id != account_id:
        screen.warn(
            f"{project.source}: account_id is {project.account_id!r}; you are signed in as "
            f"{account_id!r}, which is used"
        )


def _variables(variables: tuple[str, ...]) -> dict[str, str]:
    """Return `KEY:VALUE` arguments as a mapping."""
    for each in variables:
        if ":" not in each:
            raise click.UsageError(f"--var {each}: it must be KEY:VALUE")
    return dict(each.split(":", 1) for each in variables)


def _secrets(path: Path | None) -> dict[str, str]:
    """Read the secrets of a file; none of no file."""
    if path is None:
        return {}
    from tenantry_cli.workers.secrets_file import read_secrets

    return {name: value for name, value in read_secrets(path).items() if value is not None}
