"""`workerctl models coverage`: which uses of cache pages are checked."""

from __future__ import annotations

import click

from .json_output import print_json
from .tables import columns


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def coverage(as_json: bool) -> None:
    """Say for every model, phase and op whether pages are checked there.

    Nodes find out by trying when they start; one line per op of each member. Exits with 1 where a
    check is off or a node has not answered.
    """
    from tenantry import AI

    with AI() as client:
        report = client.coverage()
    if as_json:
        print_json(report)
    else:
        header = ("MODEL", "PHASE", "OP", "FORMAT", "DEVICE", "CHECK")
        rows = [
            (op.model, op.phase, op.op, op.format, op.device, "on" if op.checked else "OFF")
            for op in report.ops
        ]
        click.echo(columns([header, *rows], right_aligned=set()))
    if report.nodes_without_answer:
        click.echo(f"{report.nodes_without_answer} node(s) have not answered", err=True)
    if not report.all_checked:
        click.get_current_context().exit(1)
