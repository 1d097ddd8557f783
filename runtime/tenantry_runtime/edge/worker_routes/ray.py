"""Ids of requests, which clients see in `cf-ray`."""

from __future__ import annotations

import os

NUM_BYTES = 16
NUM_AT_ONCE = 256
"""The kernel is asked for so many at a time: each time, another thread has the interpreter meanwhile."""


class Rays:
    """Makes random UUIDs."""

    __slots__ = ("_bytes", "_next")

    def __init__(self) -> None:
        self._bytes = b""
        self._next = 0

    def make(self) -> str:
        """Return one as RFC 9562 writes it, of version 4."""
        start = self._next
        if start >= len(self._bytes):
            self._bytes = os.urandom(NUM_BYTES * NUM_AT_ONCE)
            start = 0
        self._next = start + NUM_BYTES
        drawn = self._bytes[start : start + NUM_BYTES].hex()
        variant = "89ab"[int(drawn[16], 16) & 3]
        return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-{variant}{drawn[17:20]}-{drawn[20:]}"
