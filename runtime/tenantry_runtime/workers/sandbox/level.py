"""How well isolates are confined: the levels, and what each is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """From the best to none; `docs/sandbox.md` says what each stops."""

    FULL = "full"
    """Namespaces, a root and a user of its own, Landlock, system call filter, limits."""
    USER_NAMESPACE = "user-namespace"
    """The same without privileges: all isolates are one user, the runtime's."""
    NO_NAMESPACE = "no-namespace"
    """Landlock, system call filter and limits only: names of the machine's files can be seen."""
    NONE = "none"
    """Whatever works; for a developer's own code."""

    @property
    def rank(self) -> int:
        """0 for none; the more the better."""
        return _RANKS[self]

    def reaches(self, floor: Level) -> bool:
        """Return whether it is at least as good."""
        return self.rank >= floor.rank


_RANKS = {Level.NONE: 0, Level.NO_NAMESPACE: 1, Level.USER_NAMESPACE: 2, Level.FULL: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Which layers work on this machine; each was tried."""

    own_namespaces: bool
    """As root, or with its capabilities."""
    user_namespace: bool
    own_users: bool
    landlock: int
    """Version of its interface; 0: none."""
    filter: bool
    """Of system calls; with limits, and what else every level needs."""
    problems: tuple[tuple[str, str], ...] = ()
    """Each layer that does not work, and why."""

    @property
    def level(self) -> Level:
        """Return the best level."""
        for level in Level:
            if self.can(level):
                return level
        return Level.NONE

    def can(self, level: Level) -> bool:
        """Return whether a level's layers are all here."""
        if level is Level.NONE:
            return True
        if not (self.filter and self.landlock):
            return False
        match level:
            case Level.FULL:
                return self.own_namespaces and self.own_users
            case Level.USER_NAMESPACE:
                return self.user_namespace
            case Level.NO_NAMESPACE:
                return self.landlock >= MIN_LANDLOCK_ALONE


MIN_LANDLOCK_ALONE = 3
"""Before it, opening a file with `O_TRUNC` was not Landlock's to refuse."""
