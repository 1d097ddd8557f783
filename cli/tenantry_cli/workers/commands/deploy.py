"""`workerctl deploy`."""

from __future__ import annotations

from dataclasses import replace

import click

from tenantry_cli.workers.commands.uploading import (
    Asked,
    prepare,
    upload_options,
    warn_of_account,
)
from tenantry_cli.workers.options import Chosen, connect
from tenantry_cli.workers.output import Screen


@click.command()
@upload_options
@click.option("--triggers", "--schedule", "crons", multiple=True, help="A cron expression.")
@click.option("--routes", "--route", multiple=True, metavar="PATTERN", help="A route.")
def deploy(
    chosen: Chosen,
    screen: Screen,
    asked: Asked,
    crons: tuple[str, ...],
    routes: tuple[str, ...],
) -> None:
    """Deploy this folder's worker: all traffic goes to it at once.

    \b
    workerctl deploy
    workerctl deploy --env staging --message "fix the greeting"
    """
    from tenantry_cli.workers.config import Route
    from tenantry_cli.workers.publish import deploy as deploy_to, report, with_namespaces

    project = asked.project(chosen, screen)
    if crons:
        project = replace(project, crons=crons)
    if routes:
        project = replace(project, routes=tuple(Route(pattern=each) for each in routes))
    prepared = prepare(asked, project, screen)
    if prepared is None:
        return
    wishes = prepared.wishes
    with connect() as plane:
        warn_of_account(project, plane.account.account_id, screen)
        project, made = with_namespaces(plane, project)
        report.show_made(made, screen)
        deployed = deploy_to(plane, project, prepared.bundle, wishes, screen)
    report.show_startup(deployed.uploaded, screen)
    report.show_bindings(project, wishes, screen)
    report.show_deployed(project, deployed, screen)
    screen.result(
        {
            **prepared.document,
            **report.uploaded_document(deployed.uploaded),
            "urls": list(deployed.urls),
            "crons": list(deployed.crons),
        }
    )
