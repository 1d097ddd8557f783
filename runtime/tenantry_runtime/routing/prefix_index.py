"""What each member's prefix trees hold, as far as the edge has been told: a hint, never the truth."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import Protocol

from tenantry_runtime.cache.prefix_keys import unpack_keys

MAX_KEYS_PER_MEMBER = 1 << 20
"""67 million tokens. A member that claims more is believed nothing, until it says all there is."""


class Changes(Protocol):
    """`PrefixChanges`, as far as it matters here."""

    @property
    def added(self) -> bytes: ...

    @property
    def removed(self) -> bytes: ...

    @property
    def is_whole(self) -> bool: ...


class PrefixIndex:
    """The keys of completed pages, by member."""

    def __init__(self, *, max_keys: int = MAX_KEYS_PER_MEMBER) -> None:
        self._max_keys = max_keys
        self._by_member: dict[Hashable, set[int] | None] = {}
        """None: it has claimed too much."""

    def apply(self, member: Hashable, changes: Changes) -> None:
        """Take what a member says of its trees.

        Raises `ValueError` when it is no whole number of keys.
        """
        added, removed = unpack_keys(changes.added), unpack_keys(changes.removed)
        keys = set() if changes.is_whole else self._by_member.get(member, set())
        if keys is None:
            return
        keys.difference_update(removed)
        keys.update(added)
        self._by_member[member] = keys if len(keys) <= self._max_keys else None

    def forget(self, member: Hashable) -> None:
        self._by_member.pop(member, None)

    def num_pages(self, member: Hashable) -> int:
        """Return how many pages the member is known to hold."""
        return len(self._by_member.get(member) or ())

    def longest(self, member: Hashable, keys: Sequence[int]) -> int:
        """Return how many of a prompt's first pages the member is known to hold.

        A key stands for all that precedes its page too, and trees lose their leaves first: so this
        may halve its way to the last known one instead of asking for each.
        """
        known = self._by_member.get(member)
        if not known or not keys or keys[0] not in known:
            return 0
        return bisect_left(range(len(keys)), True, key=lambda index: keys[index] not in known)
