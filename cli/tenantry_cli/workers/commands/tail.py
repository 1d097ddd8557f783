"""`workerctl tail`: what a worker does, live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tenantry_cli.workers.options import Chosen, connect, listing_options, worker_options
from tenantry_cli.workers.output import Screen

T = TypeVar("T")


def record_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add which worker it is, which of its records are wanted, and how they are shown."""
    options = (
        click.argument("worker", required=False, metavar="[WORKER]"),
        click.option(
            "--status",
            "statuses",
            type=click.Choice(["ok", "error", "canceled"]),
            multiple=True,
            help="How it ended; repeat it for more.",
        ),
        click.option("--search", metavar="TEXT", help="What it logged holds this."),
        listing_options,
        worker_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@record_options
@click.option("--method", "methods", multiple=True, metavar="METHOD", help="GET, POST, …")
@click.option("--header", metavar="NAME[:VALUE]", help="A header of the request.")
@click.option("--ip", "ips", multiple=True, help="Where the request came from.")
@click.option("--version-id", metavar="VERSION", help="Which version it was.")
@click.option(
    "--sampling-rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Which part of all, as 0.1.",
)
def tail(worker: str | None, screen: Screen, chosen: Chosen, **filters: Any) -> None:
    """Show what a worker does, as it does it, until Ctrl-C.

    \b
    workerctl tail --status error
    """
    from tenantry_cli.workers.tailing import Wanted, tail as open_tail

    name = chosen.worker(worker)
    show = printer(screen)
    with connect() as plane, open_tail(plane, name, Wanted(**filters)) as records:
        click.secho(
            f"Connected to {name}, waiting for logs... (Ctrl-C ends it)", dim=True, err=True
        )
        for record in records:
            show(record)


# Any: JSON
def printer(screen: Screen) -> Callable[[dict[str, Any]], None]:
    """Return what prints records: as one line of JSON each, or for people."""
    return _print_json if screen.as_json else _print_lines


def _print_json(record: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.encode(record))


def _print_lines(record: dict[str, Any]) -> None:
    from tenantry_cli.workers.output.screen import color
    from tenantry_cli.workers.record_lines import record_lines

    for line in record_lines(record):
        click.echo(line, color=color())
