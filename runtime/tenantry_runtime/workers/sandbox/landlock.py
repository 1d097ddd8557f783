"""Landlock: what an isolate may open, as rules on paths. Standard library only.

| version of the interface | adds |
|---|---|
| 1 | opening, making and removing files |
| 2 | moving files between folders |
| 3 | truncation |
| 4 | TCP |
| 5 | ioctl of devices |
| 6 | abstract Unix sockets and signals to the outside |

What the kernel knows and no rule allows is refused.
"""

from __future__ import annotations

import os
import stat
import struct

from . import linux

WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIRECTORY = 1 << 3
# beside those, to remove and make folders and files, to move and to truncate
PRIVATE_ACCESS = (
    (WRITE_FILE | READ_FILE | READ_DIRECTORY)
    | (1 << 4 | 1 << 5)
    | (1 << 7 | 1 << 8)
    | (1 << 13 | 1 << 14)
)

_NUM_FILE_RIGHTS = (0, 13, 14, 15, 15, 16)
_TCP_RIGHTS = 0b11
_SCOPES = 0b11
_TCP_VERSION = 4
_SCOPE_VERSION = 6


class Rules:
    """Paths that are opened once, to make rulesets of."""

    def __init__(self, readable: list[str]) -> None:
        self._version = linux.landlock_version()
        self._num_rights = _NUM_FILE_RIGHTS[min(self._version, len(_NUM_FILE_RIGHTS) - 1)]
        self._opened: list[tuple[int, int]] = []
        for path in readable:
            self._open(path, READ_FILE | READ_DIRECTORY)
        self._open(os.devnull, READ_FILE | WRITE_FILE)

    def ruleset(self, private: str | None) -> int:
        """Return a new ruleset's descriptor; below `private` files are made, written and removed."""
        known = (1 << self._num_rights) - 1
        attributes = struct.pack("=Q", known)
        if self._version >= _TCP_VERSION:
            attributes += struct.pack("=Q", _TCP_RIGHTS)
        if self._version >= _SCOPE_VERSION:
            attributes += struct.pack("=Q", _SCOPES)
        made = linux.landlock_create(attributes)
        for access, beneath in self._opened:
            linux.landlock_allow(made, access, beneath)
        if private is not None:
            opened = os.open(private, os.O_PATH | os.O_CLOEXEC)
            linux.landlock_allow(made, PRIVATE_ACCESS & known, opened)
            os.close(opened)
        return made

    def _open(self, path: str, access: int) -> None:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            access &= READ_FILE | WRITE_FILE
        self._opened.append((access, opened))
