"""What a template, and an isolate of it, are asked to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .cgroups import GroupLimits
from .guest_folder import GuestCode
from .interpreter import Interpreter
from .level import Layers, Level
from .users import usable_users

# page tables, buffers of its stream, and pages that it has in common with the template
_KERNEL_BYTES = 32 << 20
# beside what counts as data: shared objects, and what thread stacks and their guards take
_SPARE_ADDRESS_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateRlimits:
    """What the kernel counts of one isolate."""

    memory_bytes: int = 128 << 20
    """Private memory that can be written; more raises `MemoryError` in the worker."""
    num_threads: int = 16
    """The isolate's first included."""
    num_files: int = 64
    private_bytes: int = 16 << 20
    """Of files in `/tmp`, which is there at the levels with namespaces."""
    cpu_s: int | None = None
    """Of its whole life; whoever runs isolates counts by invocation."""

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "num_threads", "num_files", "private_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; at least 1 is needed")

    @property
    def group_bytes(self) -> int:
        """Memory, files in `/tmp` and what the kernel holds for it, where a control group counts."""
        return self.memory_bytes + self.private_bytes + _KERNEL_BYTES

    @property
    def address_bytes(self) -> int:
        """Address space beyond the template's.

        Pages that were written and then made read-only are no data any more to the kernel: this
        bounds what a worker can hold in that way where there is no cgroup to.
        """
        return 2 * self.memory_bytes + _SPARE_ADDRESS_BYTES


class UidRange:
    """User ids for isolates: none is given to two that live at one time.

    One for all templates of a process; processes of one machine need ranges of their own.
    """

    def __init__(self, first: int | None = None, count: int | None = None, start: int = 0) -> None:
        """Begin with the one at `start`, so that processes with one range seldom meet.

        Without `first` and `count` the range is the one that this machine, or container, has for it.
        """
        if first is None or count is None:
            first, count = usable_users() or (1, 1)
        if first < 1 or count < 1 or not 0 <= start < count:
            raise ValueError(f"no range of users: {count!r} from {first!r}, starting at {start!r}")
        self.first = first
        self.count = count
        self._alive: set[int] = set()
        self._next = start

    def take(self) -> int:
        """Return one that no living isolate has. Raises `LookupError` when all are taken."""
        if len(self._alive) >= self.count:
            raise LookupError(f"all {self.count} user ids from {self.first} are taken")
        while (uid := self.first + self._next) in self._alive:
            self._next = (self._next + 1) % self.count
        self._next = (self._next + 1) % self.count
        self._alive.add(uid)
        return uid

    def give_back(self, uid: int) -> None:
        """Return one whose isolate has ended."""
        self._alive.remove(uid)

    def __iter__(self) -> Iterator[int]:
        """Iterate over those that are taken."""
        return iter(sorted(self._alive))


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSpec:
    """A template process."""

    interpreter: Interpreter
    dependencies: str | None = None
    """Folder that is last on `sys.path` of its isolates; the template imports nothing of it."""
    floor: Level = Level.USER_NAMESPACE
    """Below it no template starts; `Level.NONE` runs whatever this machine can."""
    level: Level | None = None
    """Confine at just this level; None: the best."""
    layers: Layers | None = None
    """What a probe found; None: probe first."""
    limits: GroupLimits | None = None
    """What all its isolates may take together, by control groups; None: no groups.

    Each isolate then has a group for its memory, too, and takes some 10 ms longer to spawn.
    """
    directory: str | None = None
    """Where its folder is made; None: with temporary files. Not on a mount with `noexec`."""
    guest: GuestCode = field(default_factory=GuestCode)
