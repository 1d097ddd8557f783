"""When a node that says nothing counts as gone."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

KEEPALIVE_INTERVAL_S = 10.0
KEEPALIVE_TIMEOUT_S = 10.0
"""A machine that vanishes without closing its connections is noticed after both."""

Wait: TypeAlias = Annotated[float, Meta(gt=0)]


class Liveness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long an edge waits for a node's signs of life, in seconds."""

    ask_every_s: Wait = 2.0
    """Between two requests for statistics."""
    stale_after_s: Wait = 30.0
    """A step loop that has not turned for this long is not healthy; a long prefill chunk may take seconds."""
    lost_after_s: Wait = 60.0
    """Sequences of a step loop that has not turned for this long are given up, though its front answers."""
    keepalive_interval_s: Wait = KEEPALIVE_INTERVAL_S
    keepalive_timeout_s: Wait = KEEPALIVE_TIMEOUT_S
    """A front that answers no ping within this is gone; so are its sequences."""
