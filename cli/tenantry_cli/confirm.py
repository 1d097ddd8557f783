"""Questions before what cannot be undone, or not easily."""

from __future__ import annotations

import sys

import click


def confirm(question: str, *, yes: bool, is_final: bool = False) -> None:
    """Ask a person, and end the command unless they agree; `yes` says it in advance.

    Where there is nobody to ask the answer is yes, unless what follows is final.
    """
    if yes:
        return
    if sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)
    elif is_final:
        raise click.UsageError("there is no terminal to ask at: say --yes")
