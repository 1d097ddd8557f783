"""What a W3C `traceparent` names: `00-TRACE-SPAN-FLAGS`, in hexadecimal digits."""

from __future__ import annotations

import re
from typing import NamedTuple

# later versions may say more behind the flags
_FORM = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")


class SpanIds(NamedTuple):
    trace_id: str
    """32 digits."""
    span_id: str
    """16 digits."""


def span_ids(traceparent: str) -> SpanIds | None:
    """Return which span a header names; None where it names none, as clients may write anything."""
    found = _FORM.fullmatch(traceparent)
    return None if found is None else SpanIds(found[1], found[2])
