"""Values on standard input: as arguments every user of the machine would see them."""

from __future__ import annotations

import sys

import click


def piped_value() -> str:
    """Return what is piped, without its last line end."""
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        # the error itself has the value in it
        raise click.ClickException("the value is not UTF-8 text") from None
    return text.removesuffix("\n").removesuffix("\r")
