"""Becomes another program as a user without privileges, with Python and the repository in its reach.

`python -m support.escapes.as_nobody UID TREE[:TREE...] COMMAND ...`, as root. A tree below a folder
that only root may enter is bound at its own path over an empty one, in a mount namespace of its own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tenantry_runtime.workers.sandbox import linux


def main(uid: int, trees: list[Path], command: list[str]) -> None:
    """Never return."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    for closed in sorted({closed for tree in trees for closed in _closed_folders(tree)}):
        _open_up(closed, [tree for tree in trees if tree.is_relative_to(closed)])
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    os.execv(command[0], command)


def _closed_folders(tree: Path) -> list[Path]:
    """Return the outermost folder on the way that others may not enter, if there is one."""
    closed = [folder for folder in reversed(tree.parents) if not folder.stat().st_mode & 0o001]
    return closed[:1]


def _open_up(closed: Path, trees: list[Path]) -> None:
    with tempfile.TemporaryDirectory(prefix="tenantry-trees-") as made:
        kept = {tree: Path(made, str(index)) for index, tree in enumerate(trees)}
        for tree, place in kept.items():
            place.mkdir()
            linux.mount(str(tree), str(place), None, linux.MS_BIND | linux.MS_REC)
        linux.mount("tmpfs", str(closed), "tmpfs", 0, "mode=755")
        for tree, place in kept.items():
            tree.mkdir(parents=True)
            linux.mount(str(place), str(tree), None, linux.MS_BIND | linux.MS_REC)
            linux.unmount(str(place))


if __name__ == "__main__":
    main(int(sys.argv[1]), [Path(tree) for tree in sys.argv[2].split(":")], sys.argv[3:])
