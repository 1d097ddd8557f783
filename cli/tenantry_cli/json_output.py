"""What commands print with `--json`."""

from __future__ import annotations

import click


def print_json(value: object) -> None:
    """Print a value as indented JSON, in UTF-8 whatever the terminal has."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)))
