"""Control groups, version 1 and 2: limits that the kernel counts over several processes.

Standard library only: a probe tries them in a process of its own. A hierarchy is usable if a group
can be made in this process's own, limited, and joined; nothing else is looked at.

| limit | version 1 | version 2 |
|---|---|---|
| memory | `memory.limit_in_bytes` | `memory.max`, without swap |
| processes and threads | `pids.max` | `pids.max` |
| processors | `cpu.cfs_quota_us` of `cpu.cfs_period_us` | `cpu.max` |

Joining costs about 10 ms a hierarchy, in which the kernel waits for all its processors: it belongs
where isolates are made ahead, never where a request waits.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("memory", "pids", "cpu")

_PERIOD_US = 100_000
# a group is busy until the last of its processes has been reaped
_REMOVE_TIMEOUT_S = 2.0
_REMOVE_PAUSE_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the processes of a group may take together; None: no limit."""

    memory_bytes: int | None = None
    num_tasks: int | None = None
    cpus: float | None = None

    def needs(self) -> tuple[str, ...]:
        """Return the controllers that count it."""
        values = (self.memory_bytes, self.num_tasks, self.cpus)
        return tuple(name for name, value in zip(CONTROLLERS, values, strict=True) if value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """A tree of groups, and where this process is in it."""

    version: int
    controllers: tuple[str, ...]
    own: Path


class Group:
    """A group in each hierarchy that its limits need; it is removed when it is empty."""

    def __init__(self, folders: list[tuple[Hierarchy, Path]]) -> None:
        self._folders = folders

    @classmethod
    def make(cls, hierarchies: list[Hierarchy], name: str, limits: GroupLimits) -> Group:
        """Make and limit a group below this process's own. Raises `OSError`."""
        needed = [
            hierarchy for hierarchy in hierarchies if set(limits.needs()) & {*hierarchy.controllers}
        ]
        group = cls([(hierarchy, hierarchy.own / name) for hierarchy in needed])
        group._create(limits)
        return group

    def child(self, name: str, limits: GroupLimits, controllers: tuple[str, ...]) -> Group:
        """Make a group below this one, in the hierarchies of `controllers`. Raises `OSError`."""
        folders = [
            (hierarchy, folder / name)
            for hierarchy, folder in self._folders
            if {*controllers} & {*hierarchy.controllers}
        ]
        group = Group(folders)
        group._create(limits)
        return group

    def add(self, pid: int) -> None:
        """Have a process, with its threads, join. Raises `OSError`."""
        for _, folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Remove it when its processes have ended; wait for the kernel, bounded. Raises `OSError`."""
        deadline = time.monotonic() + _REMOVE_TIMEOUT_S
        for _, folder in self._folders:
            while not _removed(folder):
                if time.monotonic() > deadline:
                    raise OSError(errno.EBUSY, f"{folder} still has processes")
                time.sleep(_REMOVE_PAUSE_S)

    def _create(self, limits: GroupLimits) -> None:
        made: list[Path] = []
        try:
            for hierarchy, folder in self._folders:
                if hierarchy.version == 2:
                    wanted = " ".join(f"+{name}" for name in hierarchy.controllers)
                    (folder.parent / "cgroup.subtree_control").write_text(wanted)
                folder.mkdir()
                made.append(folder)
                _limit(hierarchy, folder, limits)
        except OSError:
            for folder in made:
                folder.rmdir()
            raise


def find_hierarchies(process: str = "/proc/self") -> list[Hierarchy]:
    """Return where this process is in each hierarchy that counts something; none of it was tried."""
    paths: dict[str, str] = {}
    for line in Path(process, "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            paths[name] = path
    found: list[Hierarchy] = []
    for line in Path(process, "mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        root, mounted_at = fields.split()[3:5]
        kind, _, options = rest.split(" ", 2)
        hierarchy = _hierarchy(kind, options, root, Path(mounted_at), paths)
        if hierarchy is not None and hierarchy.controllers:
            found.append(hierarchy)
    return found


def _hierarchy(
    kind: str, options: str, root: str, mounted_at: Path, paths: dict[str, str]
) -> Hierarchy | None:
    if kind == "cgroup":
        names = set(options.split(","))
        path = next((paths[name] for name in CONTROLLERS if name in names & {*paths}), None)
        version = 1
    elif kind == "cgroup2":
        names, path, version = set(), paths.get(""), 2
    else:
        return None
    if path is None or not path.startswith(root):
        return None
    own = mounted_at / path.removeprefix(root).lstrip("/")
    if version == 2:
        listed = own / "cgroup.controllers"
        names = set(listed.read_text().split()) if listed.exists() else set()
    controllers = tuple(name for name in CONTROLLERS if name in names)
    return Hierarchy(version=version, controllers=controllers, own=own)


def _limit(hierarchy: Hierarchy, folder: Path, limits: GroupLimits) -> None:
    files: dict[str, str] = {}
    is_first = hierarchy.version == 1
    if limits.memory_bytes and "memory" in hierarchy.controllers:
        name = "memory.limit_in_bytes" if is_first else "memory.max"
        files[name] = str(limits.memory_bytes)
        if not is_first:
            files["memory.swap.max"] = "0"
    if limits.num_tasks and "pids" in hierarchy.controllers:
        files["pids.max"] = str(limits.num_tasks)
    if limits.cpus and "cpu" in hierarchy.controllers:
        quota = int(limits.cpus * _PERIOD_US)
        if is_first:
            files["cpu.cfs_period_us"] = str(_PERIOD_US)
            files["cpu.cfs_quota_us"] = str(quota)
        else:
            files["cpu.max"] = f"{quota} {_PERIOD_US}"
    for name, value in files.items():
        path = folder / name
        # not there where a machine has no swap
        if name != "memory.swap.max" or path.exists():
            path.write_text(value)


def _removed(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True
