"""Reading what tenants uploaded in a process of its own, which bounds what it takes (`*_scan.py`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import anyio


async def scanned(interpreter: str, script: Path, content: bytes, timeout_s: float) -> bytes | None:
    """Return what a script says of content; None where it gave up. Raises `TimeoutError`."""
    with anyio.fail_after(timeout_s):
        done = await anyio.run_process(
            # isolated, and without site packages: the tenant's names mean nothing to it
            [interpreter, "-I", "-S", str(script)],
            input=content,
            stderr=subprocess.DEVNULL,
            check=False,
            env={},
        )
    return None if done.returncode != 0 else done.stdout
