"""Where an application is, if it is not at its host's root."""

from __future__ import annotations

import re

from ._request import Request

PREFIX_HEADER = "x-forwarded-prefix"
"""Says what the runtime took off a request's path; a client's own never arrives."""

_PREFIX = re.compile(r"(/[A-Za-z0-9_-]+)+")


def mount_of(request: Request) -> str:
    """Return what comes before a request's path where its client asks, without a slash at the end."""
    prefix = request.headers.get(PREFIX_HEADER) or ""
    return prefix if _PREFIX.fullmatch(prefix) else ""
