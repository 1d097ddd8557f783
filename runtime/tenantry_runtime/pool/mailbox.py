"""Where the tokens of one sequence wait for the request that reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio

from tenantry_runtime.errors import TenantryError

from .messages import SequenceTokens
from .pending import PendingTokens


class Mailbox(AsyncIterator[SequenceTokens]):
    """The tokens of one running sequence, in order; ends after its finish.

    What arrived before a failure is delivered before the failure is raised.
    """

    def __init__(self) -> None:
        self._pending: PendingTokens | None = None
        self._error: TenantryError | None = None
        self._changed = anyio.Event()
        self._is_read_out = False
        self.is_over = False
        """Whether nothing more can arrive, so that there is nothing to cancel."""

    @property
    def num_unread_tokens(self) -> int:
        return 0 if self._pending is None else len(self._pending)

    def add(self, tokens: SequenceTokens) -> None:
        if self._pending is None:
            self._pending = PendingTokens(tokens)
        else:
            self._pending.add(tokens)
        self.is_over = tokens.finish is not None
        self._changed.set()

    def fail(self, error: TenantryError) -> None:
        self._error = error
        self.is_over = True
        self._changed.set()

    async def __anext__(self) -> SequenceTokens:
        while self._pending is None:
            if self._is_read_out:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._changed = anyio.Event()
            await self._changed.wait()

        tokens = self._pending.take()
        self._pending = None
        self._is_read_out = tokens.finish is not None
        return tokens
