"""The nodes that this edge knows, and which of them serves a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenantry_runtime.core import Phase
from tenantry_runtime.errors import NodeUnavailable
from tenantry_runtime.pool.interface import TokenSource

PHASES: tuple[Phase, ...] = ("prefill", "decode")


class Placement(NamedTuple):
    """Where a sequence runs, and how long it may become there."""

    node: TokenSource
    context_tokens: int


class Nodes:
    """Picks the first healthy node that hosts a model in both phases."""

    def __init__(self, nodes: Sequence[TokenSource]) -> None:
        self._nodes = tuple(nodes)

    @property
    def all(self) -> tuple[TokenSource, ...]:
        return self._nodes

    def place(self, model: str) -> Placement:
        """Choose a node; raise `NodeUnavailable` if none is healthy and serves the model."""
        for node in self._nodes:
            if node.is_healthy and (context_tokens := _context(node, model)) is not None:
                return Placement(node, context_tokens)
        raise NodeUnavailable(model)

    def can_serve(self, model: str) -> bool:
        """Whether `place` would find a node now."""
        try:
            self.place(model)
        except NodeUnavailable:
            return False
        return True


def _context(node: TokenSource, model: str) -> int | None:
    members = [member for member in node.description.members if member.model == model]
    if {member.phase for member in members} != set(PHASES):
        return None
    return min(member.context_tokens for member in members)
