"""Where what a node says of one sequence waits for the request that reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from tenantry_runtime.errors import TenantryError

from .bell import Bell
from .interface import SequencePreempted
from .messages import Deliver, Delivered, HandoffTarget, Reserved, SequenceTokens, Started
from .pending import PendingTokens


class Mailbox(AsyncIterator[SequenceTokens]):
    """One running sequence, as `RunningSequence` says; its tokens in order.

    What arrived before a failure is delivered before the failure is raised. What is told twice is
    taken once.
    """

    def __init__(self, bell: Bell | None = None, *, post: Callable[[Deliver], None]) -> None:
        self.started: Started | None = None
        self.target: HandoffTarget | None = None
        self.is_over = False
        """Whether nothing more can arrive, so that there is nothing to cancel."""
        self._pending: PendingTokens | None = None
        self._error: TenantryError | SequencePreempted | None = None
        self._bell = bell or Bell()
        self._post = post
        self._is_read_out = False

    @property
    def num_unread_tokens(self) -> int:
        return 0 if self._pending is None else len(self._pending)

    @property
    def error(self) -> TenantryError | SequencePreempted | None:
        return None if self._pending is not None else self._error

    @property
    def has_tokens(self) -> bool:
        return self._pending is not None

    def add(self, tokens: SequenceTokens) -> None:
        if self._pending is None:
            self._pending = PendingTokens(tokens)
        else:
            self._pending.add(tokens)
        self.is_over = tokens.finish is not None
        self._bell.ring()

    def tell(self, message: Started | Reserved | Delivered) -> None:
        match message:
            case Started():
                self.started = self.started or message
            case Reserved(target=target):
                self.target = self.target or target
            case Delivered():
                self.is_over = True
        self._bell.ring()

    def fail(self, error: TenantryError | SequencePreempted) -> None:
        self._error = error
        self.is_over = True
        self._bell.ring()

    def deliver(self, message: Deliver) -> None:
        if not self.is_over:
            self._post(message)

    async def __anext__(self) -> SequenceTokens:
        while self._pending is None:
            if self._is_read_out:
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            await self._bell.rung()

        tokens = self._pending.take()
        self._pending = None
        self._is_read_out = tokens.finish is not None
        return tokens
