"""What each open request has delivered, in memory that outlives the process.

The file is mapped into memory: one store is all that it takes to count, and the pages belong to
the kernel, which keeps them when the process is killed.

| bytes | of the file |
|---|---|
| 32 | `MAGIC`, then zeros |
| 32 each | slots |

| bytes | of a slot, each 8 an integer in the machine's order |
|---|---|
| 0-7 | number of the request that it counts for; 0: nobody's |
| 8-15 | output tokens << 32, or reasoning tokens: one aligned store, which is there whole or not at all |
| 16-23 | cached tokens, before anything was delivered |
| 24-31 | 0 |

A slot is zeroed before it gets its next request's number, so that it never speaks for two.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

MAGIC = 0x31544F4C53594554

SLOT_BYTES = 32
_WORDS = SLOT_BYTES // 8
_NUMBER, _COUNTS, _CACHED = range(3)
_LOW = (1 << 32) - 1


class Delivered(NamedTuple):
    """All zero where nothing was."""

    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0


class Slots:
    """The writer's side: slots to take and to give back. For one thread."""

    def __init__(self, path: Path, num_slots: int) -> None:
        """Make the file. Raises `OSError` where there is no room for it."""
        size = (1 + num_slots) * SLOT_BYTES
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            # a page that the disk has no block for would kill the process when it is written to
            os.posix_fallocate(fd, 0, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        # a cast view stores eight bytes at once, which `struct` with a byte order does not
        self._words = memoryview(self._map).cast("Q")
        self._words[0] = MAGIC
        self._free = list(range(num_slots, 0, -1))

    def __enter__(self) -> Slots:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def take(self, number: int) -> int | None:
        """Bind a free slot to a request; None if there is none."""
        if not self._free:
            return None
        slot = self._free.pop()
        first = slot * _WORDS
        # nobody's, while it is neither one's nor the other's
        self._words[first + _NUMBER] = 0
        self._words[first + _COUNTS] = 0
        self._words[first + _CACHED] = 0
        self._words[first + _NUMBER] = number
        return slot

    def set_cached(self, slot: int, cached_tokens: int) -> None:
        """Say how much of the prompt was cached; before the first `deliver`."""
        self._words[slot * _WORDS + _CACHED] = cached_tokens

    def deliver(self, slot: int, output_tokens: int, reasoning_tokens: int) -> None:
        """Say how much the client has."""
        self._words[slot * _WORDS + _COUNTS] = output_tokens << 32 | reasoning_tokens

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def close(self) -> None:
        self._words.release()
        self._map.close()


class SlotReader:
    """What a process that is gone has left in its slots."""

    def __init__(self, content: bytes) -> None:
        """Raise `ValueError` for what is no file of slots."""
        whole = len(content) - len(content) % SLOT_BYTES
        self._words = memoryview(content[:whole]).cast("Q")
        if not whole or self._words[0] != MAGIC:
            raise ValueError("no file of slots")

    def delivered(self, slot: int, number: int) -> Delivered:
        """Return what was delivered of a request; nothing, if the slot speaks for another."""
        first = slot * _WORDS
        if not 0 < first <= len(self._words) - _WORDS or self._words[first + _NUMBER] != number:
            return Delivered()
        counts = self._words[first + _COUNTS]
        if not counts:
            return Delivered()
        return Delivered(counts >> 32, counts & _LOW, self._words[first + _CACHED])
