"""What each edge knows of the pages in this node's prefix trees. No I/O.

The front keeps the whole set, so that an edge which comes later, or reads too slowly for every
change, gets it anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tenantry_runtime.cache.prefix_keys import KEY_BYTES, pack_keys, unpack_keys
from tenantry_runtime.core import Phase

from .messages import PrefixChanges

MAX_PENDING_BYTES = 1 << 20
"""Of changes that one edge has not taken of one member; with more it gets the whole set instead."""

MAX_KEYS = 1 << 20
"""Of one member: more pages than fit any GPU. Pages beyond are unknown to routing, no more."""

Key: TypeAlias = tuple[str, Phase]


class PrefixBoard:
    """All keys of all members."""

    def __init__(self) -> None:
        self._keys: dict[Key, set[int]] = {}

    def apply(self, changes: PrefixChanges) -> None:
        """Note a change; raise `ValueError` when its keys are no whole number of keys."""
        key = (changes.model, changes.phase)
        keys = set() if changes.is_whole else self._keys.get(key, set())
        keys.difference_update(unpack_keys(changes.removed))
        keys.update(unpack_keys(changes.added)[: MAX_KEYS - len(keys)])
        self._keys[key] = keys

    def members(self) -> tuple[Key, ...]:
        return tuple(self._keys)

    def whole(self, key: Key) -> PrefixChanges:
        model, phase = key
        return PrefixChanges(
            model=model,
            phase=phase,
            added=pack_keys(sorted(self._keys[key])),
            removed=b"",
            is_whole=True,
        )


@dataclass(slots=True, eq=False)
class _Waiting:
    """Changes of one member, in order."""

    changes: list[PrefixChanges] = field(default_factory=list)
    num_bytes: int = 0


class PrefixFeed:
    """What one edge has yet to hear."""

    def __init__(self, board: PrefixBoard) -> None:
        self._board = board
        self._changes: dict[Key, _Waiting] = {}
        self._outdated: dict[Key, None] = dict.fromkeys(board.members())
        """Members of which it hears all anew."""

    @property
    def has_pending(self) -> bool:
        return bool(self._changes or self._outdated)

    @property
    def num_pending_bytes(self) -> int:
        return sum(waiting.num_bytes for waiting in self._changes.values())

    def add(self, changes: PrefixChanges) -> None:
        """Queue a change that the board has noted."""
        key = (changes.model, changes.phase)
        if key in self._outdated:
            return
        waiting = self._changes.setdefault(key, _Waiting())
        waiting.changes.append(changes)
        # each counts for a little more than its keys: many empty ones must not be free
        waiting.num_bytes += len(changes.added) + len(changes.removed) + KEY_BYTES
        if changes.is_whole or waiting.num_bytes > MAX_PENDING_BYTES:
            del self._changes[key]
            self._outdated[key] = None

    def take(self) -> list[PrefixChanges]:
        whole = [self._board.whole(key) for key in self._outdated]
        self._outdated = {}
        merged = [_merged(waiting.changes) for waiting in self._changes.values()]
        self._changes = {}
        return whole + merged


def _merged(changes: list[PrefixChanges]) -> PrefixChanges:
    """Return one change that does what all of them do in order."""
    if len(changes) == 1:
        return changes[0]
    added: set[int] = set()
    removed: set[int] = set()
    for change in changes:
        gone, come = set(unpack_keys(change.removed)), set(unpack_keys(change.added))
        added = (added - gone) | come
        removed = (removed | gone) - come
    return PrefixChanges(
        model=changes[0].model,
        phase=changes[0].phase,
        added=pack_keys(sorted(added)),
        removed=pack_keys(sorted(removed)),
    )
