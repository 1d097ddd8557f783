"""`workerctl sandbox`: how well this machine confines the code of workers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .installed import runtime_imports
from .json_output import print_json
from .tables import columns

if TYPE_CHECKING:
    # importing it takes longer than the help of any command
    from tenantry_runtime.workers.sandbox import LayerReport

# the values of `tenantry_runtime.workers.sandbox.Level`
LEVELS = ("full", "user-namespace", "no-namespace", "none")


@click.group()
def sandbox() -> None:
    """Look at what keeps tenants' code from everything else."""


@sandbox.command()
@click.option(
    "--interpreter",
    default=None,
    metavar="PATH",
    help="Python of the isolates. [default: the runtime's own]",
)
@click.option(
    "--floor",
    type=click.Choice(LEVELS),
    default="user-namespace",
    show_default=True,
    help="Level below which the exit status is 1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def probe(interpreter: str | None, floor: str, as_json: bool) -> None:
    """Try every layer of the sandbox, each in a process that is thrown away.

    Says which level isolates reach, as the user that runs this: the runtime serves other people's
    code only at its floor or above.
    """
    import anyio

    with runtime_imports():
        from tenantry_runtime.errors import ConfigurationError
        from tenantry_runtime.workers.sandbox import (
            Level,
            find_interpreter,
            layers_of,
            probe as try_layers,
        )

    async def report() -> list[LayerReport]:
        return await try_layers(await find_interpreter(interpreter or sys.executable))

    try:
        reports = anyio.run(report)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    level = layers_of(reports).level
    reaches = level.reaches(Level(floor))
    if as_json:
        print_json({"level": level, "floor": floor, "reaches_floor": reaches, "layers": reports})
    else:
        header = ("LAYER", "WORKS", "DETAIL")
        rows = [(layer.name, "yes" if layer.works else "NO", layer.detail) for layer in reports]
        click.echo(columns([header, *rows], right_aligned=set()))
        click.echo(f"\nlevel: {level.value}; floor: {floor}")
    if not reaches:
        click.get_current_context().exit(1)
