"""What the edge needs of a node, whether it is a gRPC peer or a fake in a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from .messages import NodeDescription, SequenceTokens, Submit


class TokenSource(Protocol):
    """One node, as the edge sees it."""

    @property
    def is_healthy(self) -> bool:
        """Whether the node answers; new work goes to healthy nodes only."""
        ...

    @property
    def description(self) -> NodeDescription:
        """What the node said of itself in the last handshake."""
        ...

    def generate(
        self, submit: Submit
    ) -> AbstractAsyncContextManager[AsyncIterator[SequenceTokens]]:
        """Run one sequence; leaving the context before its finish cancels it on the node.

        The iterator ends after the tokens that carry `finish`. It raises `CapacityExceeded`,
        `ContextExceeded`, `GenerationFailed` or `NodeUnavailable` (also when the node vanishes
        midway).
        """
        ...
