"""A child process must not outlive the process that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies; exit if that has happened already.

    Linux alone has this. Elsewhere a child notices its parent's death by their socket.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            errno = ctypes.get_errno()
            raise OSError(errno, os.strerror(errno))

    if os.getppid() != parent_pid:
        raise SystemExit(1)


def main(arguments: list[str]) -> None:
    """`python -m tenantry_runtime.pool.lifeline PARENT_PID MODULE ARGUMENT…`: run a module so."""
    parent_pid, module, *rest = arguments
    die_with_parent(int(parent_pid))
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
