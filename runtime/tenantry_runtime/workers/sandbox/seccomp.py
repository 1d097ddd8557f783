"""The filter of system calls: what a Python process needs, and nothing else. Standard library only.

| call | answer |
|---|---|
| of another architecture, or x32's | the process is killed |
| what no program calls by accident: `ptrace`, `bpf`, kernel modules, ... | the process is killed |
| newer than these tables | ENOSYS, so that libc does without |
| `clone3` | ENOSYS, so that libc calls `clone`, whose flags can be read |
| `clone` | only with `CLONE_THREAD` and without any namespace |
| `kill`, `tkill`, `tgkill` | only of the process itself |
| `mmap` | only what `RLIMIT_DATA` counts, or a file's pages |
| `recvmsg` | refused: nobody has descriptors to send to an isolate |
| `sendto`, `fcntl`, `ioctl`, `prctl`, `getsockopt`, `prlimit64`, `socketpair`, ... | only with the arguments below |
| on the list | allowed |
| everything else | EPERM |
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from . import syscalls

_ALLOWED = """
read write readv writev pread64 pwrite64 close close_range lseek fstat newfstatat stat lstat statx
access faccessat faccessat2 readlink readlinkat getdents64 getcwd open openat umask
fsync fdatasync ftruncate munmap mremap mprotect madvise brk membarrier
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait sigaltstack
pipe pipe2 dup dup2 dup3 select pselect6 poll ppoll eventfd2
epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
timerfd_create timerfd_settime timerfd_gettime setitimer getitimer alarm
shutdown getsockname getpeername
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
getpid gettid getppid getpgrp getuid geteuid getgid getegid getresuid getresgid getgroups
getrlimit getrusage sysinfo uname getrandom getcpu sched_yield
futex set_robust_list set_tid_address rseq restart_syscall exit exit_group
""".split()

# where the only files that can be changed are the isolate's own
_ALLOWED_WITH_PRIVATE_FILES = """
mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 chmod fchmod fchmodat utimensat chdir
""".split()

_FATAL = """
ptrace bpf kexec_load kexec_file_load init_module finit_module delete_module perf_event_open
io_uring_setup userfaultfd add_key request_key keyctl open_by_handle_at process_vm_readv
process_vm_writev setns pivot_root iopl ioperm modify_ldt
""".split()

_ALLOW = 0x7FFF_0000
_KILL_PROCESS = 0x8000_0000
_ERRNO = 0x0005_0000

_AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT = 0x4000_0000
# after `futex_waitv`; from there on numbers are the same everywhere
_FIRST_UNKNOWN = 450

_CLONE_THREAD = 0x0001_0000
_CLONE_NEW = 0x7E02_0080
_MAP_SHARED, _MAP_PRIVATE, _MAP_ANONYMOUS = 0x01, 0x02, 0x20
_MAP_GROWSDOWN, _MAP_HUGETLB = 0x100, 0x4_0000
_WORD = 0xFFFF_FFFF

# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_DUPFD_CLOEXEC;
# not F_SETOWN and F_SETSIG, which have the kernel send a signal to any process
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030)
# FIONBIO, FIOCLEX, FIONCLEX
_IOCTL = (0x5421, 0x5451, 0x5450)
# PR_SET_NAME, PR_GET_NAME
_PRCTL = (15, 16)
# SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN;
# not SO_PEERPIDFD, which would be a handle on the runtime
_SOCKET_OPTIONS = (3, 4, 7, 8, 30, 38, 39)
_SOL_SOCKET = 1
# bytes out of band: rarely used, and often wrong, between Unix sockets
_MSG_OOB = 1
_AF_UNIX = 1

_LOAD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_GREATER_OR_EQUAL = 0x35
_AND = 0x54
_RETURN = 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


class Check(NamedTuple):
    """What an argument must be: one of `values` after `mask`."""

    argument: int
    values: tuple[int, ...]
    mask: int = _WORD
    is_pointer: bool = False
    """Compare 64 bits; only with 0."""


def build_filter(own_pid: int, *, has_private_files: bool, has_threads: bool) -> bytes:
    """Return the program for this machine, for the process that calls itself `own_pid`."""
    machine = platform.machine()
    table = syscalls.X86_64 if machine == "x86_64" else syscalls.AARCH64
    allowed = [*_ALLOWED, *(_ALLOWED_WITH_PRIVATE_FILES if has_private_files else ())]
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += _answer(_JUMP_GREATER_OR_EQUAL, _X32_BIT, _KILL_PROCESS)
    program += _answer(_JUMP_GREATER_OR_EQUAL, _FIRST_UNKNOWN, _ERRNO | errno.ENOSYS)
    for number in _numbers(table, allowed):
        program += _answer(_JUMP_EQUAL, number, _ALLOW)
    for name, checks in _checks(own_pid, has_threads).items():
        if name in table:
            program += _checked(table[name], checks)
    for number in _numbers(table, _FATAL):
        program += _answer(_JUMP_EQUAL, number, _KILL_PROCESS)
    program += _answer(_JUMP_EQUAL, table["clone3"], _ERRNO | errno.ENOSYS)
    program.append(_instruction(_RETURN, _ERRNO | errno.EPERM))
    return b"".join(program)


def _checks(own_pid: int, has_threads: bool) -> Mapping[str, tuple[Check, ...]]:
    own = (Check(0, (own_pid,)),)
    mappings = (_MAP_PRIVATE, _MAP_PRIVATE | _MAP_ANONYMOUS, _MAP_SHARED)
    mapping_bits = _MAP_SHARED | _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_GROWSDOWN | _MAP_HUGETLB
    checks: dict[str, tuple[Check, ...]] = {
        "mmap": (Check(3, mappings, mapping_bits),),
        "fcntl": (Check(1, _FCNTL),),
        "ioctl": (Check(1, _IOCTL),),
        "prctl": (Check(0, _PRCTL),),
        "getsockopt": (Check(1, (_SOL_SOCKET,)), Check(2, _SOCKET_OPTIONS)),
        "socketpair": (Check(0, (_AF_UNIX,)),),
        "prlimit64": (Check(0, (0, own_pid)), Check(2, (0,), is_pointer=True)),
        "sched_getaffinity": (Check(0, (0, own_pid)),),
        "sendto": (Check(3, (0,), _MSG_OOB),),
        "recvfrom": (Check(3, (0,), _MSG_OOB),),
        "sendmsg": (Check(2, (0,), _MSG_OOB),),
        "kill": own,
        "tkill": own,
        "tgkill": own,
    }
    if has_threads:
        checks["clone"] = (Check(0, (_CLONE_THREAD,), _CLONE_THREAD | _CLONE_NEW),)
    return checks


def _numbers(table: Mapping[str, int], names: Iterable[str]) -> list[int]:
    return [table[name] for name in names if name in table]


def _checked(number: int, checks: tuple[Check, ...]) -> list[bytes]:
    """Answer one call: allowed if all checks hold, else EPERM."""
    body: list[bytes] = []
    for check in checks:
        body += _hold(check)
    body.append(_instruction(_RETURN, _ALLOW))
    return [_instruction(_JUMP_EQUAL, number, 0, len(body)), *body]


def _hold(check: Check) -> list[bytes]:
    """Go on if a check holds, else return EPERM."""
    refusal = _instruction(_RETURN, _ERRNO | errno.EPERM)
    low = _ARGUMENTS + 8 * check.argument
    lines: list[bytes] = []
    if check.is_pointer:
        lines += [_instruction(_LOAD, low + 4), _instruction(_JUMP_EQUAL, 0, 1, 0), refusal]
    lines.append(_instruction(_LOAD, low))
    if check.mask != _WORD:
        lines.append(_instruction(_AND, check.mask))
    for index, value in enumerate(check.values):
        num_left = len(check.values) - index
        lines.append(_instruction(_JUMP_EQUAL, value, num_left, 0))
    return [*lines, refusal]


def _answer(comparison: int, number: int, action: int) -> list[bytes]:
    return [_instruction(comparison, number, 0, 1), _instruction(_RETURN, action)]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
