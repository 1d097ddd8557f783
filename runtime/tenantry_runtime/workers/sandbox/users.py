"""Which user ids isolates may be, as this user namespace has them. Standard library only."""

from __future__ import annotations

from pathlib import Path

# a range that container tools and distributions leave alone, below 2**31
_PREFERRED = (0x7000_0000, 0x0800_0000)
# in a container with its own users: above those that packages and people have, below `nobody`
_SMALL = (20_000, 40_000)
_MIN_COUNT = 4096


def usable_users(uid_map: str | None = None) -> tuple[int, int] | None:
    """Return the first and the number; None where too few are mapped.

    `uid_map` is what `/proc/self/uid_map` says: lines of first inside, first outside, number.
    """
    if uid_map is None:
        uid_map = Path("/proc/self/uid_map").read_text()
    spans = [(int(line.split()[0]), int(line.split()[2])) for line in uid_map.splitlines()]
    for first, count in (_PREFERRED, _SMALL):
        for inside, number in spans:
            begin = max(first, inside)
            common = min(first + count, inside + number) - begin
            if common >= _MIN_COUNT:
                return begin, common
    return None
