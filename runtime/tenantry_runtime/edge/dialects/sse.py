"""Server-sent events."""

from __future__ import annotations

import msgspec

DONE = b"data: [DONE]\n\n"
"""Ends a stream that is whole."""

_encoder = msgspec.json.Encoder()


def sse(record: msgspec.Struct, *, event: str | None = None) -> bytes:
    """Print one event; `event` is its type, for clients that look at it."""
    # JSON as msgspec prints it has no line breaks, which would end the field
    data = b"data: " + _encoder.encode(record) + b"\n\n"
    return data if event is None else b"event: " + event.encode() + b"\n" + data
