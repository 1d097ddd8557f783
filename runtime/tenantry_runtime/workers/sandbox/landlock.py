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

EXECUTE = 1 << 0
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

BIND_TCP = 1 << 0
CONNECT_TCP = 1 << 1

_NUM_FILE_RIGHTS = (0, 13, 14, 15, 15, 16)
_SCOPES = 0b11
_TCP_VERSION = 4
_SCOPE_VERSION = 6


def new_ruleset(tcp_rights: int) -> tuple[int, int]:
    """Return the descriptor of rules that allow nothing yet, and the file rights that the kernel knows.

    `tcp_rights` are those to refuse, where it knows them.
    """
    version = linux.landlock_version()
    known = (1 << _NUM_FILE_RIGHTS[min(version, len(_NUM_FILE_RIGHTS) - 1)]) - 1
    attributes = struct.pack("=Q", known)
    if version >= _TCP_VERSION:
        attributes += struct.pack("=Q", tcp_rights)
    if version >= _SCOPE_VERSION:
        attributes += struct.pack("=Q", _SCOPES)
    return linux.landlock_create(attributes), known


def allow(ruleset: int, access: int, path: str) -> None:
    """Allow access to a path and what is below it."""
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    linux.landlock_allow(ruleset, access, opened)
    os.close(opened)


class Rules:
    """Paths that are opened once, to make rulesets of."""

    def __init__(self, readable: list[str]) -> None:
        self._opened: list[tuple[int, int]] = []
        for path in readable:
            self._open(path, READ_FILE | READ_DIRECTORY)
        self._open(os.devnull, READ_FILE | WRITE_FILE)

    def ruleset(self, private: str | None) -> int:
        """Return a new ruleset's descriptor; below `private` files are made, written and removed."""
        made, known = new_ruleset(BIND_TCP | CONNECT_TCP)
        for access, beneath in self._opened:
            linux.landlock_allow(made, access, beneath)
        if private is not None:
            allow(made, PRIVATE_ACCESS & known, private)
        return made

    def _open(self, path: str, access: int) -> None:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            access &= READ_FILE | WRITE_FILE
        self._opened.append((access, opened))
