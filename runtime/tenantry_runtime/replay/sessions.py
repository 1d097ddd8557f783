"""Which requests of a trace are one conversation. A trace does not say; its blocks do.

A conversation's next prompt begins with the blocks of the one before. So a request belongs to the
session that first had its deepest known block; one that knows none begins a session. The first
block counts for nobody: where all prompts share it, it is the operator's, not a conversation's.
"""

from __future__ import annotations

from collections.abc import Sequence


class SessionChains:
    """Told of every request in order; gives each its session."""

    def __init__(self) -> None:
        self._session_of: dict[int, int] = {}
        self._num_sessions = 0

    @property
    def num_sessions(self) -> int:
        return self._num_sessions

    def assign(self, blocks: Sequence[int]) -> int:
        """Return the number of the session that a request of these blocks is part of."""
        # the chain's own ids are prefixes: behind a known block all before it are known too
        known = (self._session_of.get(block) for block in reversed(blocks[1:]))
        session = next((number for number in known if number is not None), None)
        if session is None:
            session = self._num_sessions
            self._num_sessions += 1
        for block in blocks[1:]:
            self._session_of.setdefault(block, session)
        return session
