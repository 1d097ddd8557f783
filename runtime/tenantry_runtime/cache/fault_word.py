"""What the check says of a sequence whose pages did not pass (`tenantry_kernels.page_check`). No torch.

A word is 0, or (logical page + 1) << 8 with the sum of what did not agree on that page.
"""

from __future__ import annotations

from enum import IntFlag


class Disagreement(IntFlag):
    """What of a page was not as its sequence had it."""

    INDEX = 1
    """It is not in the pool."""
    TAG = 2
    """Not the one it was acquired with."""
    OWNER = 4
    """Neither the request's nor the public's."""
    FILL = 8
    """Another place in the sequence, or more or fewer tokens in it."""


def logical_page(word: int) -> int | None:
    """Return the first page that did not pass; None for no fault."""
    return (word >> 8) - 1 if word else None


def disagreement(word: int) -> Disagreement:
    return Disagreement(word & 0xFF)
