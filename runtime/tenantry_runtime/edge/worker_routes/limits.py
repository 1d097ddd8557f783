"""What one request for a worker, and all of them together, may take of an edge."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class RouteLimits(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Cloudflare's numbers, where it has them."""

    max_requests: Annotated[int, Meta(ge=1)] = 4096
    """Open at one time, of all workers; more are refused with 503."""
    max_requests_each: Annotated[int, Meta(ge=1)] = 1024
    """Of those, of the workers of one account."""
    max_body_bytes: Annotated[int, Meta(ge=0)] = 100_000_000
    max_url_bytes: Annotated[int, Meta(ge=64, le=65_536)] = 16_384
    max_header_bytes: Annotated[int, Meta(ge=1024)] = 131_072
    """Of all names and values."""
    body_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """Between two pieces of a request's body."""
    unread_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """A body that the worker reads nothing of for so long is thrown away: reading it fails from then on."""
    stall_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    """A client that takes nothing of a response for so long is given up."""


MAX_INLINE_BYTES = 64 << 10
"""A request's body up to this is read before the worker hears of it, and goes to it in one frame."""

MAX_HEADERS = 240
"""Of a request: a frame holds 256, and the edge adds some."""

MAX_RESPONSE_HEADER_BYTES = 128 << 10
"""Of all names and values of a response, as of a request's."""
