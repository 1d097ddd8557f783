"""Waiting for processes that are not our children, without polling."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import anyio


def children_of(pid: int) -> list[int]:
    children: list[int] = []
    # threads and the process itself may end while they are looked at
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (task / "children").read_text().split())
    return children


async def wait_until_gone(pid: int, *, within_s: float = 30) -> None:
    """Return when a process has ended; fail when it has not in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # a pidfd is readable when its process has ended
        with anyio.fail_after(within_s):
            await anyio.wait_readable(fd)
    finally:
        os.close(fd)


def descendants_of(pid: int) -> list[int]:
    """Children, their children, and so on."""
    children = children_of(pid)
    return children + [below for child in children for below in descendants_of(child)]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
