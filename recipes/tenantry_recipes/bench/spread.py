"""Several measurements of one thing, as three numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Least, median and most of several measurements."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Raises `ValueError` where there is none."""
        ordered = sorted(values)
        if not ordered:
            raise ValueError("a spread needs at least one value")
        return cls(ordered[0], statistics.median(ordered), ordered[-1])

    def scaled(self, factor: float) -> Spread:
        """Return the same in another unit."""
        return Spread(*(factor * value for value in self))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Divide pair by pair: the two of a pair were measured next to each other."""
    return Spread.of(our / their for our, their in zip(ours, theirs, strict=True))
