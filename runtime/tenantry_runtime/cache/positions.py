"""Rows of a step, by sequence and position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def positions(start_S: Sequence[int], end_S: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of `start:end` of all sequences its sequence and its position, int64."""
    start = np.asarray(start_S, dtype=np.int64)
    count = np.asarray(end_S, dtype=np.int64) - start
    sequence_T = np.repeat(np.arange(len(start)), count)
    first_row_S = np.cumsum(count) - count
    return sequence_T, np.arange(len(sequence_T)) + (start - first_row_S)[sequence_T]
