"""One way out that hostile code might try, and what must come of it.

Code runs in an isolate with the tiny guest: `result` is what it got. It finds `facts` about the
machine that a real attacker might know or guess, and `call`, which makes a system call by its name.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tenantry_runtime.workers.sandbox import syscalls

SIGKILL, SIGSEGV, SIGSYS = 9, 11, 31

# calls that are not in the product's tables, on x86_64 and aarch64
_MORE_CALLS = {
    "acct": (163, 89),
    "fanotify_init": (300, 262),
    "inotify_init1": (294, 26),
    "kcmp": (312, 272),
    "landlock_create_ruleset": (444, 444),
    "linkat": (265, 37),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "rt_sigqueueinfo": (129, 138),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "setfsuid": (122, 151),
    "sethostname": (170, 161),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "timer_create": (222, 107),
    "vmsplice": (278, 75),
}

PRELUDE = """
import ctypes, errno, mmap, os, signal, socket, sys, threading, time
facts = {facts!r}
_numbers = {numbers!r}
def _is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False
facts['descriptor'] = next(filter(_is_open, range(3, 64)))
def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    sized = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    status = libc.syscall(ctypes.c_long(_numbers[name]), *sized)
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return status
def connect(family, kind, address):
    made = socket.socket(family, kind)
    made.settimeout(1)
    made.connect(address)
    return 'connected'
"""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What may come of an attempt: an answer that matches, or an end by a signal."""

    answer: str | None = None
    """A regular expression for all of it."""
    signals: tuple[int, ...] = ()
    is_stopped: bool = False
    """It may go on until whoever watches isolates stops it."""

    def allows(self, answer: str | None, signal: int | None, was_stopped: bool) -> bool:
        """Return whether it came to what it may."""
        if was_stopped:
            return self.is_stopped
        if answer is not None:
            return self.answer is not None and bool(re.fullmatch(self.answer, answer, re.DOTALL))
        return signal in self.signals


# what the kernel, or libc on its behalf, says no with; a mistake in an attempt's code is none of them
_NO = "(PermissionError|FileNotFoundError|NotADirectoryError|OSError|gaierror|ProcessLookupError)"
DENIED = Expected(answer=f"{_NO}: .*")
KILLED = Expected(signals=(SIGSYS,))
STOPPED = Expected(is_stopped=True)


def got(pattern: str) -> Expected:
    """Expect something that does no harm."""
    return Expected(answer=f"GOT {pattern}")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Code, and what may come of it, at all levels or at some."""

    name: str
    code: str
    expected: Expected = DENIED
    at_level: Mapping[str, Expected] = field(default_factory=dict)
    machine: str | None = None
    """The only one that it is for."""

    def expected_at(self, level: str) -> Expected:
        """Return what may come of it at a level."""
        return self.at_level.get(level, self.expected)


def attempt(
    name: str,
    code: str,
    expected: Expected = DENIED,
    *,
    machine: str | None = None,
    **at_level: Expected,
) -> Attempt:
    """Make an attempt; `no_namespace=...` is what may come of it at that level."""
    levels = {level.replace("_", "-"): value for level, value in at_level.items()}
    return Attempt(name=name, code=code, expected=expected, machine=machine, at_level=levels)


def numbers() -> dict[str, int]:
    """Return the numbers of system calls on this machine."""
    is_first = platform.machine() == "x86_64"
    table = syscalls.X86_64 if is_first else syscalls.AARCH64
    return {**table, **{name: pair[not is_first] for name, pair in _MORE_CALLS.items()}}
