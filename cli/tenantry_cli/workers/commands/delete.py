"""`workerctl delete`."""

from __future__ import annotations

from urllib.parse import quote

import click

from tenantry_cli.workers.options import (
    Chosen,
    connect,
    json_option,
    worker_options,
    yes_option,
)
from tenantry_cli.workers.output import Screen


@click.command()
@click.argument("worker", required=False, metavar="[WORKER]")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--force", is_flag=True, help="Do not ask, also where other workers call it.")
@yes_option
@worker_options
@json_option
def delete(
    worker: str | None, dry_run: bool, force: bool, yes: bool, chosen: Chosen, screen: Screen
) -> None:
    """Delete a worker, its versions, secrets, routes and triggers. KV namespaces stay."""
    from tenantry_cli.confirm import confirm
    from tenantry_cli.workers.api import Refused
    from tenantry_cli.workers.history import explained

    name = chosen.worker(worker)
    if dry_run:
        screen.say(f"--dry-run: {name} would be deleted; exiting now.")
        screen.result({"worker": name, "deleted": False})
        return
    confirm(f"Delete {name}? This cannot be undone.", yes=yes or force, is_final=True)
    params = {"force": "true"} if force else None
    with connect() as plane:
        path = f"/workers/services/{quote(name, safe='')}"
        try:
            plane.order("DELETE", path, params=params)
        except Refused as refusal:
            raise explained(refusal, name) from refusal
    screen.done(f"Successfully deleted {name}")
    screen.result({"worker": name, "deleted": True})
