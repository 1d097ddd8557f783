"""`workerctl logs`: what a worker did before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from tenantry_cli.moments import Duration
from tenantry_cli.workers.options import Chosen, connect, worker_options

from .tail import printer

if TYPE_CHECKING:
    from tenantry_cli.workers.tailing import Wanted


@click.command()
@click.argument("worker", required=False, metavar="[WORKER]")
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most."
)
@click.option(
    "--since", "since_ms", type=Duration(), metavar="TIME", help="How far back, as 30m or 2h."
)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(["ok", "error", "canceled"]),
    multiple=True,
    help="How it ended; repeat it for more.",
)
@click.option("--search", metavar="TEXT", help="What it logged holds this.")
@click.option(
    "--format",
    "wanted_format",
    type=click.Choice(["json", "pretty"]),
    help="json: a record a line. Default: pretty on a terminal, json in a pipe.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@worker_options
def logs(
    worker: str | None,
    limit: int,
    since_ms: int | None,
    statuses: tuple[str, ...],
    search: str | None,
    wanted_format: str | None,
    as_json: bool,
    chosen: Chosen,
) -> None:
    """Show what a worker did lately, the newest last. Old records go when there are many.

    \b
    workerctl logs --since 1h --status error
    """
    from tenantry_cli.workers.history import of_worker
    from tenantry_cli.workers.tailing import Wanted

    name = chosen.worker(worker)
    wanted = Wanted(statuses=statuses, search=search)
    params = {"limit": str(limit), **_params(wanted)}
    if since_ms is not None:
        params["since"] = str(time.time_ns() // 1_000_000 - since_ms)
    show = printer(wanted_format, as_json=as_json)
    with connect() as plane:
        kept = of_worker(plane, name, "/logs", dict[str, Any], params=params)
    for record in kept.get("records", []):
        show(record)
    if not kept.get("records"):
        click.echo(f"nothing is kept that fits; `workerctl tail {quote(name)}` waits", err=True)
    if kept.get("dropped"):
        click.echo(f"{kept['dropped']} records were too many to keep", err=True)


def _params(wanted: Wanted) -> dict[str, str]:
    params: dict[str, str] = {}
    for each in wanted.filters():
        if "outcome" in each:
            params["outcome"] = ",".join(each["outcome"])
        if "query" in each:
            params["query"] = each["query"]
    return params
