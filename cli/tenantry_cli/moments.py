"""Times and lengths of time, as an operator reads and writes them. All times are UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

_UNITS_S = {"m": 60, "h": 3600, "d": 86400}


def shown(unix_ms: int | None, *, otherwise: str = "-") -> str:
    """Return a time to the minute, for a table."""
    return otherwise if unix_ms is None else _moment(unix_ms).strftime("%Y-%m-%d %H:%M")


def iso(unix_ms: int | None) -> str | None:
    """Return a time for other programs."""
    if unix_ms is None:
        return None
    return _moment(unix_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Duration(click.ParamType[int]):
    """`15m`, `12h` or `90d`: milliseconds."""

    name = "duration"

    # Any: as click has it
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        number, unit = text[:-1], text[-1:]
        if unit in _UNITS_S and number.isascii() and number.isdecimal() and len(number) <= 6:
            return int(number) * _UNITS_S[unit] * 1000
        if text == "0":
            return 0
        self.fail(f"{text!r} is no length of time: write 15m, 12h or 90d", param, ctx)


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)
