"""When a node that says nothing counts as gone."""

from __future__ import annotations

from dataclasses import dataclass

from .grpc_options import KEEPALIVE_INTERVAL_S, KEEPALIVE_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    """How long an edge waits for a node's signs of life."""

    ask_every_s: float = 2.0
    """Between two requests for statistics."""
    stale_after_s: float = 30.0
    """A step loop that has not turned for this long is not healthy; a long prefill chunk may take seconds."""
    lost_after_s: float = 60.0
    """Sequences of a step loop that has not turned for this long are given up, though its front answers."""
    keepalive_interval_s: float = KEEPALIVE_INTERVAL_S
    keepalive_timeout_s: float = KEEPALIVE_TIMEOUT_S
    """A front that answers no ping within this is gone; so are its sequences."""
