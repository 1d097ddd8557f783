"""Who comes first, where several are measured one after the other: each in its turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

ContenderT = TypeVar("ContenderT")


def in_turns(contenders: Iterable[ContenderT], turn: int) -> list[ContenderT]:
    """Return all in their order, beginning with another one in every turn."""
    ordered = list(contenders)
    first = turn % len(ordered)
    return ordered[first:] + ordered[:first]
