"""Pages that a node of the same machine reads where they lie, instead of in frames.

Whoever pushes names its pages' file (`shared_pages`) in its first frame; the receiver maps its first
half, that of pages on their way out, to read. Nothing depends on it: a receiver that cannot (another
machine, another user, processes that do not see each other, another system than Linux) says so, and
gets bytes. That the bytes of a slot are the page's own, its digest says, as of all pages.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from collections import OrderedDict

from .messages import LentMemory
from .shared_pages import SlotLayout

MAX_KEPT = 8
"""Mappings of peers that push, those that are gone among them; each keeps a file alive."""

_IS_LINUX = sys.platform == "linux"


def lend(fd: int, layout: SlotLayout) -> LentMemory | None:
    """Describe this process's pages file, which must have its size; None where no peer could open it."""
    if not _IS_LINUX:
        return None
    file = os.fstat(fd)
    return LentMemory(
        pid=os.getpid(),
        fd=fd,
        device=file.st_dev,
        inode=file.st_ino,
        slot_bytes=layout.slot_bytes,
        num_slots=layout.num_slots,
    )


class BorrowedPages:
    """The outgoing slots of a peer, to read."""

    def __init__(self, memory: LentMemory) -> None:
        """Raise `OSError` or `ValueError` for what is not there, or is something else."""
        layout = SlotLayout(slot_bytes=memory.slot_bytes, num_slots=memory.num_slots)
        if not (layout.slot_bytes > 0 and layout.num_slots > 0):
            raise ValueError("no slots")
        # not to be stopped by a pipe or a device that has the number by now
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(f"/proc/{memory.pid:d}/fd/{memory.fd:d}", flags)
        try:
            file = os.fstat(fd)
            if (file.st_dev, file.st_ino) != (memory.device, memory.inode):
                raise ValueError("another file")
            # with less, or where it may become less, a read would end this process
            if file.st_size != layout.num_bytes or not _keeps_its_size(fd):
                raise ValueError("a file of another size")
            self._mapping = mmap.mmap(fd, layout.num_bytes // 2, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._layout = layout
        self._bytes = memoryview(self._mapping)

    def page(self, slot: int, num_bytes: int) -> memoryview | None:
        """Return what is in a slot now; None for none of these slots."""
        if slot >= self._layout.num_slots or num_bytes > self._layout.slot_bytes:
            return None
        start = slot * self._layout.slot_bytes
        return self._bytes[start : start + num_bytes]


class Lenders:
    """The peers whose memory is mapped: a mapping costs more than a page, and is kept for the next."""

    def __init__(self) -> None:
        self._pages: OrderedDict[LentMemory, BorrowedPages] = OrderedDict()

    def borrow(self, memory: LentMemory) -> BorrowedPages | None:
        """Return a peer's slots; None where they cannot be had."""
        pages = self._pages.pop(memory, None)
        if pages is None:
            try:
                pages = BorrowedPages(memory)
            except (OSError, ValueError, OverflowError):
                return None
        self._pages[memory] = pages
        if len(self._pages) > MAX_KEPT:
            # unmapped when no stream has it any more
            self._pages.popitem(last=False)
        return pages


def _keeps_its_size(fd: int) -> bool:
    # an OSError for files that cannot be sealed
    return bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK)
