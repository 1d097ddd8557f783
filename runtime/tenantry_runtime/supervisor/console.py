"""Lines for the person in front of a supervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO


class Console:
    """Writes lines, each at once."""

    def __init__(self, *, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors

    def write(self, text: str) -> None:
        _write(self._out, text)

    def line(self, text: str = "") -> None:
        self.write(f"{text}\n")

    def error(self, problem: str) -> None:
        _write(self._errors, f"Error: {problem}\n")

    def died(self, name: str, how: str, log: Path, tail: Sequence[str]) -> None:
        lines = [f"the {name} {how}; its last lines (all: {log}):", *tail]
        self.error("\n  ".join(lines))


def listed(names: Sequence[str]) -> str:
    """Join names as a sentence does."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _write(stream: TextIO, text: str) -> None:
    # a closed pipe silences the lines, not the serving
    with contextlib.suppress(BrokenPipeError):
        stream.write(text)
        stream.flush()
