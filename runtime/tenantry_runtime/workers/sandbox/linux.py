"""System calls that Python has no name for. Standard library only: the template runs this.

Every function raises `OSError` with what was called in its text.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38

_AT_RECURSIVE = 0x8000
_SECCOMP_MODE_FILTER = 2
_INSTRUCTION_BYTES = 8
_CAPABILITY_VERSION_3 = 0x2008_0522
# more than the kernel has: it says where they end
_MAX_CAPABILITIES = 64
_M_ARENA_MAX = -8

# the same on every architecture, as all calls since 2018 are
_CLOSE_RANGE = 436
_MOUNT_SETATTR = 442
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446

_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_libc.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def unshare(flags: int) -> None:
    """Leave the namespaces of `flags` for new ones; of a new PID namespace the next child is the first."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def setns(fd: int, kind: int) -> None:
    """Enter a namespace; with `CLONE_NEWPID`, children do."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)), "setns")


def prctl(option: int, value: int = 0) -> None:
    """Set an attribute of this process."""
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl({option})")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount a filesystem, or bind a path to another one."""
    encoded = os.fsencode(kind) if kind else None
    status = _libc.mount(
        os.fsencode(source), os.fsencode(target), encoded, flags, os.fsencode(options)
    )
    _check(status, f"mount {source} at {target}")


def restrict_mount(target: str, attributes: int, *, is_recursive: bool = True) -> None:
    """Add `MOUNT_ATTR_…` to a mount, and to all that are below it."""
    wanted = struct.pack("=4Q", attributes, 0, 0, 0)
    status = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(-1),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE if is_recursive else 0),
        wanted,
        ctypes.c_size_t(len(wanted)),
    )
    _check(status, f"mount_setattr {target}")


def unmount(target: str) -> None:
    """Take a mount out of the tree; it goes when nothing uses it."""
    _check(_libc.umount2(os.fsencode(target), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_root(new_root: str, put_old: str) -> None:
    """Make `new_root` the root of this mount namespace."""
    call = ctypes.c_long(_PIVOT_ROOT[platform.machine()])
    _check(_libc.syscall(call, os.fsencode(new_root), os.fsencode(put_old)), "pivot_root")


def drop_bounding_set() -> None:
    """Let no program that this process becomes have any capability."""
    for capability in range(_MAX_CAPABILITIES):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            return


def drop_capabilities() -> None:
    """Empty the effective, the permitted and the inheritable set."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    call = ctypes.c_long(_CAPSET[platform.machine()])
    _check(_libc.syscall(call, header, bytes(24)), "capset")


def install_filter(program: bytes) -> None:
    """Filter system calls from now on; needs `PR_SET_NO_NEW_PRIVS`."""
    loaded = _Program(len(program) // _INSTRUCTION_BYTES, program)
    status = _libc.prctl(PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(loaded), 0, 0)
    _check(status, "seccomp")


def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 where it is not there, or is switched off."""
    version = _libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1)
    )
    return max(0, int(version))


def landlock_create(attributes: bytes) -> int:
    """Return the file descriptor of an empty ruleset."""
    status = _libc.syscall(
        ctypes.c_long(_LANDLOCK_CREATE_RULESET),
        attributes,
        ctypes.c_size_t(len(attributes)),
        ctypes.c_uint(0),
    )
    return _check(status, "landlock_create_ruleset")


def landlock_allow(ruleset: int, access: int, beneath: int) -> None:
    """Allow `access` to what is at or below the open path `beneath`."""
    rule = struct.pack("=Qi", access, beneath)
    status = _libc.syscall(
        ctypes.c_long(_LANDLOCK_ADD_RULE),
        ctypes.c_int(ruleset),
        ctypes.c_int(1),
        rule,
        ctypes.c_uint(0),
    )
    _check(status, "landlock_add_rule")


def landlock_restrict(ruleset: int) -> None:
    """Put this thread, and all that it starts, under a ruleset."""
    status = _libc.syscall(
        ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint(0)
    )
    _check(status, "landlock_restrict_self")


def close_range(first: int, last: int = 0xFFFF_FFFF) -> None:
    """Close every descriptor from `first` to `last`, whatever this process may still open."""
    if first <= last:
        call, flags = ctypes.c_long(_CLOSE_RANGE), ctypes.c_uint(0)
        _check(_libc.syscall(call, ctypes.c_uint(first), ctypes.c_uint(last), flags), "close_range")


def use_one_arena() -> None:
    """Keep glibc from setting 64 MiB of address space aside for each thread."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(ctypes.c_int(_M_ARENA_MAX), ctypes.c_int(1))


def _check(status: int, what: str) -> int:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return status
