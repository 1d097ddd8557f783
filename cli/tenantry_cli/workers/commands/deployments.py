"""`workerctl deployments`."""

from __future__ import annotations

import click

from tenantry_cli.workers.options import Chosen, connect, json_option, worker_options
from tenantry_cli.workers.output import Screen


@click.group()
def deployments() -> None:
    """Look at which versions get which part of a worker's traffic."""


@deployments.command("list")
@worker_options
@json_option
def list_command(chosen: Chosen, screen: Screen) -> None:
    """List the 10 newest deployments, the newest last."""
    from tenantry_cli.workers.history import (
        SHOWN,
        deployment_document,
        deployments_of,
        show_deployment,
        versions_of,
    )

    worker = chosen.worker()
    with connect() as plane:
        found = deployments_of(plane, worker)[:SHOWN]
        known = {} if screen.as_json else {each.id: each for each in versions_of(plane, worker)}
    for deployment in reversed(found):
        show_deployment(deployment, known, screen)
    screen.result([deployment_document(each) for each in found])


@deployments.command()
@worker_options
@json_option
def status(chosen: Chosen, screen: Screen) -> None:
    """Show what gets traffic now."""
    from tenantry_cli.workers.history import (
        deployment_document,
        deployments_of,
        show_deployment,
        version_of,
    )

    worker = chosen.worker()
    with connect() as plane:
        found = deployments_of(plane, worker)
        if not found:
            raise click.ClickException(f"{worker} has no deployment; `workerctl deploy` makes one")
        shares = [] if screen.as_json else found[0].versions
        known = {share.version_id: version_of(plane, worker, share.version_id) for share in shares}
    show_deployment(found[0], known, screen)
    screen.result(deployment_document(found[0]))
