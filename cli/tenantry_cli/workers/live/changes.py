"""Which files of a worker's folder have changed: looked at, not asked of the system.

That sees every file system alike: shared folders of containers and virtual machines tell of no changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Snapshot = dict[Path, tuple[int, int]]
"""Modification times (ns) and sizes."""


def snapshot(paths: Iterable[Path]) -> Snapshot:
    """Look at files; those that are not there are left out."""
    seen: Snapshot = {}
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        seen[path] = (status.st_mtime_ns, status.st_size)
    return seen


def changed(before: Snapshot, after: Snapshot) -> list[Path]:
    """Return what is new, gone or different, by name."""
    differing = {path for path in before | after if before.get(path) != after.get(path)}
    return sorted(differing)
