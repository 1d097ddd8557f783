"""Memory that front and step loop share: slots for pages on their way out, and on their way in.

| bytes from | to | written by | read by |
|---|---|---|---|
| 0 | `num_slots * slot_bytes` | step loop | front |
| `num_slots * slot_bytes` | `2 * num_slots * slot_bytes` | front | step loop |

The front makes the file and the loop inherits it: it has no name, so nothing of it can be left
behind. The loop gives it its size, once it knows how large its pages are.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from dataclasses import dataclass

BUDGET_BYTES = 64 << 20
"""Of the slots of one direction: ten of the largest pages."""

MIN_SLOTS = 4
"""Of one direction, however large its pages are: one each being written, sent, read and checked."""

MAX_SLOTS = 64
"""Of one direction. Smaller pages do not need more: their time is spent on messages, not on bytes."""

_ALIGNMENT_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLayout:
    """How many slots of what size; the same number both ways."""

    slot_bytes: int
    num_slots: int

    @classmethod
    def of(cls, page_bytes: int) -> SlotLayout:
        """Choose the slots for pages of up to so many bytes."""
        if page_bytes < 1:
            raise ValueError(f"a page must have at least 1 byte, not {page_bytes!r}")
        slot_bytes = -(-page_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        num_slots = max(MIN_SLOTS, min(MAX_SLOTS, BUDGET_BYTES // slot_bytes))
        return cls(slot_bytes=slot_bytes, num_slots=num_slots)

    @property
    def num_bytes(self) -> int:
        return 2 * self.num_slots * self.slot_bytes


class SharedPages:
    """The mapped slots."""

    def __init__(self, fd: int, layout: SlotLayout) -> None:
        self.layout = layout
        self._mapping = mmap.mmap(fd, layout.num_bytes)
        self._bytes = memoryview(self._mapping)

    def outgoing(self, slot: int) -> memoryview:
        return self._slot(slot)

    def incoming(self, slot: int) -> memoryview:
        return self._slot(self.layout.num_slots + slot)

    def _slot(self, index: int) -> memoryview:
        start = index * self.layout.slot_bytes
        return self._bytes[start : start + self.layout.slot_bytes]


def create_pages_file() -> int:
    """Make an empty file that only descriptors name; return one that the caller closes."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tenantry-pages", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    # elsewhere than on Linux: a file that is deleted already
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def set_size(fd: int, layout: SlotLayout) -> None:
    """Give the file its size for good: with less, an access to the mapping would end the process."""
    os.ftruncate(fd, layout.num_bytes)
    if hasattr(os, "memfd_create"):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
