"""`workerctl drill`: what an operator tries on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .installed import require_packages, runtime_imports
from .json_output import print_json
from .tables import columns

if TYPE_CHECKING:
    from tenantry_runtime.engine.config import NodeConfig
    from tenantry_runtime.engine.drill import DrillRow

DRILL_PACKAGES = ("torch", "numpy", "safetensors")


@click.group()
def drill() -> None:
    """Try what must never happen, on a node of its own."""


@drill.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file of a node that allows drills; default: both nano models.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=2, show_default=True, help="Of each fault."
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON.")
def integrity(config_file: Path | None, rounds: int, as_json: bool) -> None:
    """Put faults of every kind into cache pages and see that each is caught.

    Runs a node in this process, with models, formats and device of the configuration, and no edge:
    nobody's requests are touched. Exits with 1 unless every fault was caught, no wrong token was
    told and nobody else was refused.
    """
    import logging

    require_packages(DRILL_PACKAGES)
    with runtime_imports():
        from tenantry_runtime.engine.drill import run_drill
        from tenantry_runtime.errors import ConfigurationError
    # every fault that is caught is logged as an incident: here it is what was asked for
    logging.getLogger("tenantry_runtime.engine").addHandler(logging.NullHandler())
    try:
        rows = run_drill(_config(config_file), rounds=rounds)
    except ConfigurationError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(_outcome(rows))
    else:
        click.echo(_table(rows))
    if not all(row.is_passed for row in rows):
        click.get_current_context().exit(1)


def _config(config_file: Path | None) -> NodeConfig:
    import msgspec

    from tenantry_runtime.catalog import load_catalog
    from tenantry_runtime.engine.config import ModelSource, NodeConfig
    from tenantry_runtime.errors import ConfigurationError
    from tenantry_runtime.pool.config import read_config

    if config_file is None:
        entries = load_catalog(None).entries
        models = tuple(ModelSource(id=entry.id, directory=entry.directory) for entry in entries)
        return NodeConfig(models=models, drills=True)
    try:
        return msgspec.json.decode(read_config(config_file).engine, type=NodeConfig)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{config_file}: engine: {error}") from error


def _table(rows: list[DrillRow]) -> str:
    header = ("MODEL", "FAULT", "INJECTED", "CAUGHT", "WRONG TOKENS", "FALSE ALARMS", "AUDIT", "")
    cells = [
        (
            row.model,
            row.kind,
            str(row.num_injected),
            str(row.num_caught),
            str(row.num_wrong_tokens),
            str(row.num_false_alarms),
            "clean" if not row.num_findings else f"{row.num_findings} findings",
            "passed" if row.is_passed else "FAILED",
        )
        for row in rows
    ]
    return columns([header, *cells], right_aligned={2, 3, 4, 5})


# Any: JSON
def _outcome(rows: list[DrillRow]) -> dict[str, Any]:
    import msgspec

    return {
        "passed": all(row.is_passed for row in rows),
        "rows": [{**msgspec.to_builtins(row), "passed": row.is_passed} for row in rows],
    }
