"""Where a command writes: results to standard output, warnings and questions to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from tenantry_cli.json_output import print_json
from tenantry_cli.tables import columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """With `as_json` nothing but `result` reaches standard output."""

    as_json: bool = False

    def say(self, text: str = "", *, bold: bool = False, dim: bool = False) -> None:
        """Write a line for people."""
        if not self.as_json:
            click.secho(text, bold=bold or None, dim=dim or None, color=color())

    def done(self, text: str) -> None:
        """Write a line that says what worked."""
        if not self.as_json:
            click.secho(text, fg="green", color=color())

    def warn(self, text: str) -> None:
        """Write a warning to standard error, also with JSON."""
        click.secho("Warning: ", fg="yellow", bold=True, nl=False, err=True, color=color())
        click.echo(text, err=True)

    def note(self, text: str) -> None:
        """Write what is going on to standard error, where a person sees it."""
        if not self.as_json and sys.stderr.isatty():
            click.secho(text, dim=True, err=True, color=color())

    def result(self, document: object) -> None:
        """Write the result for programs."""
        if self.as_json:
            print_json(document)

    def boxed(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a table with lines around its cells, as wide as they are, within the terminal."""
        if self.as_json:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Column, Table
        from rich.text import Text

        table = Table(
            *(Column(Text(name, style="bold")) for name in header), box=box.SQUARE, show_lines=True
        )
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        is_terminal = sys.stdout.isatty()
        # in a file a line is as long as it is
        Console(highlight=False, width=None if is_terminal else 10_000).print(table)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write a plain table: one line per row."""
        if not self.as_json:
            click.echo(columns([tuple(header), *map(tuple, rows)], right_aligned=set()))

    @contextmanager
    def transfer(
        self, words: str, num_bytes: int, *, then: str
    ) -> Generator[Callable[[int], None], None, None]:
        """Show how much of `num_bytes` is through; call what it yields with more bytes.

        `then` says what is waited for when all are.
        """
        if self.as_json or not sys.stderr.isatty():
            yield _nowhere
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[size]}"),
            console=Console(stderr=True),
            transient=True,
        )
        with bar:
            task = bar.add_task(words, total=num_bytes, size=f"{num_bytes / 1024:.2f} KiB")

            def advance(more: int) -> None:
                bar.advance(task, more)
                if bar.finished:
                    bar.remove_task(task)
                    # without a total: nobody knows how long it takes
                    bar.add_task(then, total=None, size="")

            yield advance


def _nowhere(_: int) -> None:
    pass


def color() -> bool | None:
    """Return False where colors are not wanted, None where click finds out by itself."""
    return False if os.environ.get("NO_COLOR") else None
