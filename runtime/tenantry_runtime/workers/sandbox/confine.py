"""What a new process gives up before it runs anything of a tenant's. Standard library only."""

from __future__ import annotations

import os
import resource
import signal
import struct

from . import linux
from .jail import PRIVATE
from .landlock import Rules
from .seccomp import build_filter
from .wire import SpawnOrder, TemplateOrder

_STACK_BYTES = 8 << 20
# more than the files of any bundle that fits
_PRIVATE_INODES = 4096
_NUM_PENDING_SIGNALS = 64
# no process: above the kernel's largest number, and in no other instruction
ANY_PID = 0x7A5E_115E


class Confinement:
    """What a template prepares once, for each isolate to put on."""

    def __init__(self, template: TemplateOrder) -> None:
        self._template = template
        self._rules = Rules(template.readable) if template.has_landlock else None
        self._has_private_files = bool(template.namespaces)
        # without files of its own, each isolate has the same rules
        is_shared = self._rules is not None and not self._has_private_files
        self._shared_ruleset = self._rules.ruleset(None) if self._rules and is_shared else None
        self._filter = build_filter(
            ANY_PID,
            has_private_files=self._has_private_files,
            has_threads=template.has_threads,
        )

    def put_on(self, order: SpawnOrder, template_pid: int, kept: tuple[int, ...]) -> None:
        """Give up everything but the descriptors `kept`.

        `order.address_bytes` is here the whole address space.
        """
        if self._has_private_files:
            linux.unshare(linux.CLONE_NEWNS)
            _mount_private_files(order)
        ruleset = self._ruleset()
        if self._template.namespaces == "user":
            # a user namespace of its own counts the threads of this isolate only
            linux.unshare(linux.CLONE_NEWUSER)
            # of which its maker has all capabilities
            linux.drop_bounding_set()
        set_limits(order, self._has_private_files)
        self._give_up_privileges(order.uid, template_pid)
        if ruleset is not None:
            linux.landlock_restrict(ruleset)
        _close_all_but(kept)
        if self._template.has_filter:
            linux.install_filter(filter_for(self._filter, os.getpid()))

    def _ruleset(self) -> int | None:
        if self._rules is None or self._shared_ruleset is not None:
            return self._shared_ruleset
        return self._rules.ruleset(PRIVATE)

    def _give_up_privileges(self, uid: int | None, template_pid: int) -> None:
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        linux.drop_capabilities()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        # after the change of user, which clears it
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if not self._template.namespaces and os.getppid() != template_pid:
            raise ProcessLookupError("the template has ended")
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)


def filter_for(program: bytes, own_pid: int) -> bytes:
    """Return a filter that was built for `ANY_PID` as one for a process."""
    return program.replace(struct.pack("=I", ANY_PID), struct.pack("=I", own_pid))


def set_limits(order: SpawnOrder, has_private_files: bool) -> None:
    """Set what the kernel counts by itself; no limit is ever raised."""
    file_bytes = order.private_bytes if has_private_files else 0
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: file_bytes,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: _NUM_PENDING_SIGNALS,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_STACK: _STACK_BYTES,
        resource.RLIMIT_NOFILE: order.num_files,
        resource.RLIMIT_AS: order.address_bytes,
        resource.RLIMIT_DATA: order.memory_bytes,
    }
    if order.num_threads is not None:
        limits[resource.RLIMIT_NPROC] = order.num_threads
    if order.cpu_s is not None:
        limits[resource.RLIMIT_CPU] = order.cpu_s
    for limit, value in limits.items():
        _, most = resource.getrlimit(limit)
        bounded = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (bounded, bounded))


def _close_all_but(kept: tuple[int, ...]) -> None:
    first = 3
    for descriptor in sorted(kept):
        linux.close_range(first, descriptor - 1)
        first = descriptor + 1
    linux.close_range(first)


def _mount_private_files(order: SpawnOrder) -> None:
    owner = order.uid or 0
    options = f"size={order.private_bytes},nr_inodes={_PRIVATE_INODES},mode=700"
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("tmpfs", PRIVATE, "tmpfs", flags, f"{options},uid={owner},gid={owner}")
