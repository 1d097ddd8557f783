"""Become another run of Python, able to write into one folder and to read Python, certificates and wheels.

`python -I -m tenantry_runtime.workers.bundles.confined FOLDER READABLE[:READABLE…] ARGUMENT…`: pip, that is.

Wheels are unpacked, never run; this is for what a hostile index or wheel might make of a fault in pip
itself. It may open connections: it has to reach the index.
"""

from __future__ import annotations

import os
import resource
import struct
import sys

from tenantry_runtime.workers.sandbox import linux

MAX_CPU_S = 120
MAX_FILE_BYTES = 512 << 20
MAX_MEMORY_BYTES = 4 << 30
NO_LANDLOCK = 77
"""Exit status: the kernel cannot confine it."""

_READ = 1 << 2 | 1 << 3
_EXECUTE = 1 << 0
_NUM_FILE_RIGHTS = (0, 13, 14, 15, 15, 16)
_BIND_TCP = 1
_SCOPES = 0b11
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/dev/null", "/dev/urandom", "/dev/random")


def confine(folder: str, readable: list[str]) -> None:
    """Confine this process for good."""
    for kind, limit in (
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    version = linux.landlock_version()
    if version == 0:
        sys.exit(NO_LANDLOCK)
    known = (1 << _NUM_FILE_RIGHTS[min(version, len(_NUM_FILE_RIGHTS) - 1)]) - 1
    attributes = struct.pack("=Q", known)
    if version >= 4:
        attributes += struct.pack("=Q", _BIND_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = linux.landlock_create(attributes)
    for path in (*_SYSTEM, sys.base_prefix, sys.prefix, *readable):
        if os.path.exists(path):
            _allow(ruleset, _READ | _EXECUTE if os.path.isdir(path) else 1 << 2, path)
    _allow(ruleset, known, folder)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_bounding_set()
    linux.landlock_restrict(ruleset)


def _allow(ruleset: int, access: int, path: str) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    linux.landlock_allow(ruleset, access, opened)
    os.close(opened)


if __name__ == "__main__":
    _, target, others, *arguments = sys.argv
    confine(target, [path for path in others.split(":") if path])
    os.execv(sys.executable, [sys.executable, "-I", *arguments])
