"""What the step-loop process needs of an engine, whether it is the real one or a fake in a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from .messages import (
    Deliver,
    MemberDescription,
    NodeMessage,
    NodeStatistics,
    ServedElsewhere,
    Submit,
)
from .page_map import PageMap
from .page_port import PagePort

Tell: TypeAlias = Callable[[NodeMessage], None]
"""Hears a message in the middle of a turn; it neither waits nor says anything to the loop."""


class StepLoop(Protocol):
    """Sequences in, their tokens out, one step per turn. Never blocks but to compute."""

    def submit(self, submit: Submit) -> None:
        """Queue a sequence. One that cannot run is answered by a `Failed` of a later turn."""
        ...

    def deliver(self, deliver: Deliver) -> None:
        """Send the pages of a sequence that is being prefilled; one that is gone is ignored."""
        ...

    def cancel(self, request_id: str) -> None:
        """Forget a sequence and release all it holds; an unknown id is ignored."""
        ...

    def served_elsewhere(self, message: ServedElsewhere) -> None:
        """Take account of what other members of a pool have given; one of another pool is ignored."""
        ...

    def turn(self, tell_ahead: Tell | None = None) -> Sequence[NodeMessage]:
        """Compute one step and return what it had to say.

        `tell_ahead` hears, before that is computed, what others can act on meanwhile.
        """
        ...

    @property
    def is_idle(self) -> bool:
        """Whether a turn would compute nothing, until a message or an event of a port comes."""
        ...

    def statistics(self) -> NodeStatistics: ...

    def page_maps(self) -> tuple[PageMap, ...]: ...

    def describe(self) -> tuple[MemberDescription, ...]: ...

    def close(self) -> None: ...


BuildLoop: TypeAlias = Callable[[bytes, PagePort], StepLoop]
"""Makes the loop of its configuration in JSON and of the way that pages take to and from other nodes;
raises `ConfigurationError` when it is unusable."""
