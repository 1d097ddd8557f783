"""Compile, without a GPU, exactly what an op would launch on an H200, and read the machine code.

An op is called with tensors on the meta device: its launcher runs as it would on a GPU, and every
kernel that it launches is specialized as Triton's JIT would do it (pointer types, divisibility by
16, constants, warps, stages) and compiled for sm_90. Nothing runs.

Compilation and the interpreter exclude each other in one process (`TRITON_INTERPRET` is read when
a kernel is decorated), so the calls are made in a child; see `aot_child`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

MAX_SHARED_BYTES = 227 * 1024
"""Shared memory that one program may have on sm_90."""

_CHILD = Path(__file__).with_name("aot_child.py")
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Call:
    """An op as `package.module:function`, with what it is called with, tensors on the meta device."""

    op: str
    arguments: Sequence[object] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One launched kernel's machine code."""

    kernel: str
    constants: Mapping[str, object]
    """Compile-time arguments, those that the JIT makes constant (1 and None) too."""
    grid: tuple[int, ...]
    num_warps: int
    num_stages: int
    registers: int
    """Per thread."""
    spill_bytes: int
    """Per thread, stores and loads: the bytes that its local-memory instructions move."""
    shared_bytes: int
    wgmma_drains: int
    """Waits for every outstanding wgmma. With many, each ends before the next begins: ptxas does so
    when it cannot tell what accumulators hold, for example after a loop that may have no turn."""
    opcodes: Mapping[str, int]
    """How often each SASS instruction stands in the code: `opcodes.get("HGMMA", 0)`."""

    def count(self, opcode: str) -> int:
        """Return how many instructions of this name the code has."""
        return self.opcodes.get(opcode, 0)

    def __str__(self) -> str:
        names = ("HGMMA", "HMMA", "LOP3", "PRMT", "SHF", "I2F", "I2FP", "F2F", "F2FP", "LDGSTS")
        counts = " ".join(f"{name} {self.count(name)}" for name in names if self.count(name))
        return (
            f"{self.kernel}: {self.registers} registers, {self.spill_bytes} spill bytes, "
            f"{self.shared_bytes} shared bytes, {self.num_warps} warps, "
            f"{self.num_stages} stages, {self.wgmma_drains} drains, {counts}"
        )


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return a tensor without contents, for a `Call`."""
    return torch.empty(shape, dtype=dtype, device="meta")


def compile_calls(calls: Mapping[str, Call]) -> dict[str, tuple[Compiled, ...]]:
    """Return what each call launches, compiled for sm_90, in the order of the launches."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # an op may be one of the tests' own
    paths = [str(_CHILD.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    request = {
        name: (call.op, tuple(call.arguments), dict(call.keywords)) for name, call in calls.items()
    }
    child = subprocess.run(
        [sys.executable, str(_CHILD)],
        input=pickle.dumps(request),
        capture_output=True,
        env=environment,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"the compiling child failed:\n{child.stderr.decode()}")
    launches: dict[str, list[dict[str, object]]] = pickle.loads(child.stdout)
    # the keys are Compiled's fields: both sides stand next to each other
    return {
        name: tuple(Compiled(**launch) for launch in made)  # type: ignore[arg-type]
        for name, made in launches.items()
    }


def require_that_all_fits(compiled: Mapping[str, tuple[Compiled, ...]]) -> None:
    """Print every kernel; fail where one spills registers or has no room in shared memory."""
    for name, kernels in compiled.items():
        for kernel in kernels:
            print(f"{name}: {kernel} {kernel.grid}")
            assert kernel.spill_bytes == 0, f"{name}: {kernel}"
            assert kernel.shared_bytes <= MAX_SHARED_BYTES, f"{name}: {kernel}"
