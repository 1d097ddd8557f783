"""Which pages have come into prefix trees and gone since somebody last asked. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Keys of pages (`prefix_keys.py`), each in one of the two at most."""

    added: list[int]
    removed: list[int]


class PrefixJournal:
    """What cancels out is not told: it takes no more memory than the trees and what left them."""

    __slots__ = ("_added", "_removed")

    def __init__(self) -> None:
        # dicts, because they keep the order
        self._added: dict[int, None] = {}
        self._removed: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._added or self._removed)

    def add(self, key: int) -> None:
        if key in self._removed:
            del self._removed[key]
        else:
            self._added[key] = None

    def remove(self, key: int) -> None:
        if key in self._added:
            del self._added[key]
        else:
            self._removed[key] = None

    def clear(self) -> None:
        self._added.clear()
        self._removed.clear()

    def take(self, max_keys: int) -> KeyChanges:
        """Forget up to so many changes and return them; departures first."""
        removed = _taken(self._removed, max_keys)
        return KeyChanges(_taken(self._added, max_keys - len(removed)), removed)


def _taken(keys: dict[int, None], max_keys: int) -> list[int]:
    taken = list(islice(keys, max_keys))
    for key in taken:
        del keys[key]
    return taken
