"""What processes take."""

from __future__ import annotations

import os
from pathlib import Path


def peak_bytes(pid: int | None = None) -> int:
    """Return the largest resident set that a process has had; of this one if none is named."""
    status = Path(f"/proc/{os.getpid() if pid is None else pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def family_of(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    family = [pid]
    for member in family:
        for task in Path(f"/proc/{member}/task").iterdir():
            family += map(int, (task / "children").read_text().split())
    return family


def family_peak_bytes(pid: int) -> int:
    """Return the sum of the peaks of a process and all that descend from it."""
    return sum(map(peak_bytes, family_of(pid)))


def processor_s(pid: int) -> float:
    """Return the time that a process, with all its threads, has had of processors."""
    # the name before it, in parentheses, may hold anything
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
