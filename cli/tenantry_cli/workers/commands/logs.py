"""`workerctl logs`: what a worker did before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from tenantry_cli.moments import Duration
from tenantry_cli.workers.options import Chosen, connect
from tenantry_cli.workers.output import Screen

from .tail import printer, record_options

if TYPE_CHECKING:
    from tenantry_cli.workers.tailing import Wanted


@click.command()
@record_options
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most."
)
@click.option(
    "--since", "since_ms", type=Duration(), metavar="TIME", help="How far back, as 30m or 2h."
)
def logs(
    worker: str | None,
    limit: int,
    since_ms: int | None,
    statuses: tuple[str, ...],
    search: str | None,
    screen: Screen,
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
    show = printer(screen)
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
