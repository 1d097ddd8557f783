"""`workerctl rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry_cli.workers.options import (
    Chosen,
    connect,
    json_option,
    worker_options,
    yes_option,
)
from tenantry_cli.workers.output import Screen

if TYPE_CHECKING:
    from tenantry_cli.workers.api.records import Deployment


@click.command()
@click.argument("version_id", metavar="[VERSION]", required=False)
@click.option("--message", "-m", help="Why.")
@yes_option
@worker_options
@json_option
def rollback(
    version_id: str | None, message: str | None, yes: bool, chosen: Chosen, screen: Screen
) -> None:
    """Give all traffic to VERSION, or to the version that had it before the present one."""
    from tenantry_cli.confirm import confirm
    from tenantry_cli.workers.history import deployments_of, show_version, version_of
    from tenantry_cli.workers.publish.deploy import give_traffic

    worker = chosen.worker()
    with connect() as plane:
        if version_id is None:
            version_id = _before(deployments_of(plane, worker), worker)
        version = version_of(plane, worker, version_id)
        show_version(version, screen)
        screen.say()
        confirm(f"Roll {worker} back to this version?", yes=yes)
        deployment_id = give_traffic(
            plane, worker, {version.id: 100.0}, message=message, triggered_by="rollback"
        )
    screen.done(f"Worker Version {version.id} has been deployed to 100% of traffic.")
    screen.say()
    screen.say(f"Current Version ID: {version.id}")
    screen.result({"worker": worker, "version_id": version.id, "deployment_id": deployment_id})


def _before(deployments: list[Deployment], worker: str) -> str:
    now = {share.version_id for share in deployments[0].versions} if deployments else set[str]()
    for deployment in deployments[1:]:
        only = deployment.only_version
        if only is not None and now != {only}:
            return only
    raise click.ClickException(
        f"{worker} has no version before the present one; `workerctl versions list` lists all"
    )
