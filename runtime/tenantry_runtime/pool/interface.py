"""What the edge needs of a node, whether it is a gRPC peer or a fake in a test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tenantry_runtime.errors import TenantryError

from .bell import Bell
from .messages import (
    Deliver,
    HandoffTarget,
    NodeDescription,
    NodeStatistics,
    PrefixChanges,
    SequenceTokens,
    ServedElsewhere,
    Started,
    Submit,
)
from .page_map import PageMaps


class SequencePreempted(Exception):
    """The node needed the sequence's pages for others: no failure, but the sequence is not there any more."""


class RunningSequence(Protocol):
    """One sequence on one node. Whatever becomes true of it rings the bell that it was opened with."""

    @property
    def started(self) -> Started | None:
        """Set when the prompt has left the queue; of the prefill part."""
        ...

    @property
    def target(self) -> HandoffTarget | None:
        """Set when pages are reserved for it; of the decode part."""
        ...

    @property
    def has_tokens(self) -> bool:
        """Whether the next tokens can be had without waiting."""
        ...

    @property
    def error(self) -> TenantryError | SequencePreempted | None:
        """What it has ended with, when nothing is left to read before that."""
        ...

    def deliver(self, message: Deliver) -> None:
        """Say where the prompt's pages go; the prefill part. One that has ended is told nothing."""
        ...

    def __aiter__(self) -> AsyncIterator[SequenceTokens]: ...

    async def __anext__(self) -> SequenceTokens:
        """Ends after the tokens that carry `finish`.

        Raises `CapacityExceeded`, `ContextExceeded`, `GenerationFailed`, `RequestTimeout`, `NodeLost` when the node
        vanishes midway, or `SequencePreempted`.
        """
        ...


class TokenSource(Protocol):
    """One node, as the edge sees it."""

    @property
    def address(self) -> str:
        """The edge's own name for it, the same after every restart."""
        ...

    @property
    def is_healthy(self) -> bool:
        """Whether the node answers; new work goes to healthy nodes only."""
        ...

    @property
    def description(self) -> NodeDescription:
        """What the node said of itself in the last handshake.

        Raises `NodeUnavailable` before the first.
        """
        ...

    def generate(
        self, submit: Submit, bell: Bell | None = None
    ) -> AbstractAsyncContextManager[RunningSequence]:
        """Run one sequence, or one part of it; leaving the context before its end cancels it there.

        Raises `NodeUnavailable` when the node is not healthy.
        """
        ...

    async def pages(self) -> PageMaps:
        """Return maps of its pages as they are about now. Raises `NodeUnavailable`."""
        ...

    def pass_on(self, served: ServedElsewhere) -> None:
        """Tell it what another node has given; one that cannot be told now misses it."""
        ...


class NodeObserver(Protocol):
    """Hears what nodes say of themselves."""

    def reported(self, node: str, statistics: NodeStatistics) -> None:
        """Take what a node has answered to the latest question for its state."""
        ...

    def changed(self, node: str, description: NodeDescription, changes: PrefixChanges) -> None:
        """Take what has changed in the prefix trees of one life of a node."""
        ...

    def lost(self, node: str, reason: str, unfinished: Sequence[Submit]) -> None:
        """Take that a node is given up, and what was running there; told again while it is silent."""
        ...

    def left(self, node: str, cut_off: Sequence[Submit]) -> None:
        """Take that a node has ended in order, and what it did not let finish."""
        ...
