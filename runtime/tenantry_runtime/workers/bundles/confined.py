"""Become another run of Python, able to write into one folder and to read Python, certificates and wheels.

`python -I -m tenantry_runtime.workers.bundles.confined FOLDER READABLE[:READABLE…] ARGUMENT…`: pip, that is.

Wheels are unpacked, never run; this is for what a hostile index or wheel might make of a fault in pip
itself. It may open connections: it has to reach the index.
"""

from __future__ import annotations

import os
import resource
import sys

from tenantry_runtime.workers.sandbox import landlock, linux

MAX_CPU_S = 120
MAX_FILE_BYTES = 512 << 20
MAX_MEMORY_BYTES = 4 << 30
NO_LANDLOCK = 77
"""Exit status: the kernel cannot confine it."""

_FOLDER = landlock.READ_FILE | landlock.READ_DIRECTORY | landlock.EXECUTE
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
    if linux.landlock_version() == 0:
        sys.exit(NO_LANDLOCK)
    ruleset, known = landlock.new_ruleset(landlock.BIND_TCP)
    for path in (*_SYSTEM, sys.base_prefix, sys.prefix, *readable):
        if os.path.exists(path):
            is_folder = os.path.isdir(path)
            landlock.allow(ruleset, _FOLDER if is_folder else landlock.READ_FILE, path)
    landlock.allow(ruleset, known, folder)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_bounding_set()
    linux.landlock_restrict(ruleset)


if __name__ == "__main__":
    _, target, others, *arguments = sys.argv
    confine(target, [path for path in others.split(":") if path])
    os.execv(sys.executable, [sys.executable, "-I", *arguments])
