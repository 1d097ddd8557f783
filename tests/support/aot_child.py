"""The process in which `support.aot` compiles: Triton with a driver that has a target but no GPU."""

from __future__ import annotations

import importlib
import pickle
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_OPCODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)(\S*)")
_WIDTH_BYTES = {".64": 8, ".128": 16, ".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2}


class TargetOnly:
    """What the JIT asks a driver for when it only compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Launches:
    """Stands in for `JITFunction.run`: compiles what would be launched, and keeps a record."""

    def __init__(self) -> None:
        self.made: list[dict[str, object]] = []
        self._compile = JITFunction.run

    def run(self, kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        # Triton is untyped
        compiled = self._compile(kernel, *args, grid=grid, warmup=True, **options)
        names = kernel.arg_names
        arguments = {**dict(zip(names, args, strict=False)), **options}
        constants = {names[path[0]]: value for path, value in compiled.src.constants.items()}
        self.made.append(
            {
                "kernel": kernel.__name__,
                "constants": {name: plain(value) for name, value in constants.items()},
                "grid": tuple(grid(arguments) if callable(grid) else grid),
                "num_warps": compiled.metadata.num_warps,
                "num_stages": compiled.metadata.num_stages,
                "shared_bytes": compiled.metadata.shared,
                **inspected(compiled.asm["cubin"]),
            }
        )
        return compiled


def inspected(cubin: bytes) -> dict[str, object]:
    """Return registers, spills and instruction counts of machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = tool("cuobjdump", "-res-usage", file.name)
        sass = tool("nvdisasm", "-c", file.name)
    found = _OPCODE.findall(sass)
    registers = re.search(r"REG:(\d+)", usage)
    assert registers is not None, usage
    return {
        "registers": int(registers[1]),
        "spill_bytes": sum(width(rest) for name, rest in found if name in ("LDL", "STL")),
        "wgmma_drains": len(re.findall(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0\b", sass)),
        "opcodes": dict(Counter(name for name, _ in found)),
    }


def width(modifiers: str) -> int:
    """Return the bytes that a load or store with these modifiers moves."""
    return next((size for mark, size in _WIDTH_BYTES.items() if mark in modifiers), 4)


def tool(name: str, *arguments: str) -> str:
    return subprocess.run(
        [str(_TOOLS / name), *arguments], capture_output=True, text=True, check=True
    ).stdout


def plain(value: object) -> object:
    """Return a constant as the parent can unpickle it without Triton."""
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def main() -> None:
    request: Mapping[str, tuple[str, tuple[Any, ...], dict[str, Any]]]
    request = pickle.load(sys.stdin.buffer)
    triton.runtime.driver.set_active(TargetOnly())
    launches: dict[str, list[dict[str, object]]] = {}
    for name, (op, arguments, keywords) in request.items():
        module, _, function = op.partition(":")
        record = Launches()
        JITFunction.run = lambda kernel, *args, **rest: record.run(kernel, *args, **rest)  # noqa: B023
        getattr(importlib.import_module(module), function)(*arguments, **keywords)
        JITFunction.run = record._compile
        launches[name] = record.made
    sys.stdout.buffer.write(pickle.dumps(launches))


if __name__ == "__main__":
    main()
