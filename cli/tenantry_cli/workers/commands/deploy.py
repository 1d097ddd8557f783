"""`workerctl deploy`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tenantry_cli.workers.options import Chosen, connect, json_option, worker_options
from tenantry_cli.workers.output import Screen

if TYPE_CHECKING:
    from tenantry_cli.workers.config import Project
    from tenantry_cli.workers.publish import Wishes

T = TypeVar("T")


def upload_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add what `deploy` and `versions upload` have in common."""
    options = (
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
    for option in reversed(options):
        command = option(command)
    return worker_options(json_option(command))


@click.command()
@upload_options
@click.option("--triggers", "--schedule", "crons", multiple=True, help="A cron expression.")
@click.option("--routes", "--route", multiple=True, metavar="PATTERN", help="A route.")
def deploy(
    chosen: Chosen,
    screen: Screen,
    script: Path | None,
    dry_run: bool,
    outdir: Path | None,
    variables: tuple[str, ...],
    tag: str | None,
    message: str | None,
    keep_vars: bool,
    secrets_file: Path | None,
    compatibility_date: str | None,
    compatibility_flags: tuple[str, ...],
    crons: tuple[str, ...],
    routes: tuple[str, ...],
) -> None:
    """Deploy this folder's worker: all traffic goes to it at once.

    \b
    workerctl deploy
    workerctl deploy --env staging --message "fix the greeting"
    """
    from tenantry_cli.workers.bundle import make_bundle, write_bundle
    from tenantry_cli.workers.config import Route
    from tenantry_cli.workers.publish import Wishes, deploy as deploy_to, report, with_namespaces

    project = the_project(chosen, script, screen)
    if crons:
        project = replace(project, crons=crons)
    if routes:
        project = replace(project, routes=tuple(Route(pattern=each) for each in routes))
    wishes = Wishes(
        tag=tag,
        message=message,
        keep_vars=keep_vars,
        variables=parse_variables(variables),
        secrets=read_secrets(secrets_file),
        compatibility_date=compatibility_date,
        compatibility_flags=compatibility_flags,
    )
    bundle = make_bundle(project)
    report.show_bundle(bundle, screen)
    if outdir is not None:
        write_bundle(bundle, outdir)
    document = report.bundle_document(project, bundle, wishes)
    if dry_run:
        end_dry_run(project, wishes, screen)
        screen.result({**document, "dry_run": True})
        return
    with connect() as plane:
        warn_of_account(project, plane.account.account_id, screen)
        project, made = with_namespaces(plane, project)
        report.show_made(made, screen)
        deployed = deploy_to(plane, project, bundle, wishes, screen)
    report.show_startup(deployed.uploaded, screen)
    report.show_bindings(project, wishes, screen)
    report.show_deployed(project, deployed, screen)
    screen.result(
        {
            **document,
            **report.uploaded_document(deployed.uploaded),
            "urls": list(deployed.urls),
            "crons": list(deployed.crons),
            "dry_run": False,
        }
    )


def the_project(chosen: Chosen, script: Path | None, screen: Screen) -> Project:
    """Return the configured project, or one of MAIN and `--name` alone."""
    if script is None:
        return chosen.project(screen)
    if not script.is_file():
        raise click.UsageError(f"there is no file {script}")
    from tenantry_cli.workers.config import Project

    if chosen.project_or_none() is not None:
        return replace(chosen.project(screen), main=script.absolute())
    if chosen.name is None:
        raise click.UsageError("without a configuration, say what the worker is called: --name")
    return Project(
        root=Path.cwd(), source="the command line", name=chosen.name, main=script.absolute()
    )


def parse_variables(variables: tuple[str, ...]) -> dict[str, str]:
    """Return `KEY:VALUE` arguments as a mapping."""
    for each in variables:
        if ":" not in each:
            raise click.UsageError(f"--var {each}: it must be KEY:VALUE")
    return dict(each.split(":", 1) for each in variables)


def read_secrets(path: Path | None) -> dict[str, str]:
    """Read the secrets of a file; none of no file."""
    if path is None:
        return {}
    from tenantry_cli.workers import secrets_file

    said = secrets_file.read_secrets(path)
    return {name: value for name, value in said.items() if value is not None}


def end_dry_run(project: Project, wishes: Wishes, screen: Screen) -> None:
    """Show what a deploy would bind, and that there was none."""
    from tenantry_cli.workers.publish import report

    report.show_bindings(project, wishes, screen)
    screen.say("--dry-run: exiting now.")


def warn_of_account(project: Project, account_id: str, screen: Screen) -> None:
    """Warn where the configuration names another account than the token's."""
    if project.account_id is not None and project.account_id != account_id:
        screen.warn(
            f"{project.source}: account_id is {project.account_id!r}; you are signed in as "
            f"{account_id!r}, which is used"
        )
