"""Tables for a terminal: Markdown, with its columns aligned."""

from __future__ import annotations

from collections.abc import Sequence

from .spread import Spread


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out rows; the first column is set flush left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(cells, widths) for cells in (header, rule, *rows))


def number(value: float) -> str:
    """Write three significant digits, or all digits before the point."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Spread) -> str:
    """Write a median with the range around it."""
    return f"{number(values.median)} ({number(values.least)} to {number(values.most)})"


def megabytes(num_bytes: float) -> str:
    return f"{number(num_bytes / 1e6)} MB"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if column else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join([first, *others]) + " |"
