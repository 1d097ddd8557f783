"""What a node computes on: whether it is there, and how much memory it has left."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

import torch

from tenantry_runtime.errors import ConfigurationError

_MEMINFO = Path("/proc/meminfo")
"""Lines such as "MemAvailable:   123 kB", where kB is 1,024 bytes (proc_meminfo(5))."""
_STATM = Path("/proc/self/statm")
"""Numbers of pages: of the address space, resident, … (proc_pid_statm(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    total_bytes: int
    free_bytes: int
    """That neither this process nor any other holds."""
    held_bytes: int
    """By this process."""


def require_device(device: str) -> None:
    """Raise `ConfigurationError` where there is no such device."""
    named = torch.device(device)
    if named.type == "cpu":
        return
    if torch.version.cuda is None:
        raise ConfigurationError(
            f"device {device!r}: PyTorch {torch.__version__} has no CUDA; install a build that has"
        )
    num_gpus = torch.cuda.device_count()
    if (named.index or 0) >= num_gpus:
        raise ConfigurationError(
            f"device {device!r}: PyTorch sees {num_gpus} GPUs here; look at nvidia-smi and "
            "CUDA_VISIBLE_DEVICES"
        )


def memory_of(device: str) -> DeviceMemory:
    """Ask the driver, or of a CPU the system: then the machine's, whatever a container is given."""
    if torch.device(device).type == "cpu":
        lines = (line.split() for line in _MEMINFO.read_text().splitlines())
        machine = {name: 1024 * int(value) for name, value, *_ in lines}
        num_resident = int(_STATM.read_text().split()[1])
        return DeviceMemory(
            total_bytes=machine["MemTotal:"],
            free_bytes=machine["MemAvailable:"],
            held_bytes=num_resident * resource.getpagesize(),
        )
    # what loading has left to the allocator is free
    torch.cuda.empty_cache()
    free_bytes, total_bytes = torch.cuda.mem_get_info(torch.device(device))
    held_bytes = torch.cuda.memory_reserved(torch.device(device))
    return DeviceMemory(total_bytes=total_bytes, free_bytes=free_bytes, held_bytes=held_bytes)
