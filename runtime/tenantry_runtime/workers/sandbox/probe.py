"""What this machine can confine: each layer is tried, in a process that is thrown away."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import msgspec

from .errors import InterpreterUnusable
from .interpreter import Interpreter, last_line
from .level import MIN_LANDLOCK_ALONE, Layers, Level

_TIMEOUT_S = 30.0
_LAYERS = (
    "namespaces",
    "user-namespace",
    "own-users",
    "no-new-privileges",
    "landlock",
    "system-call-filter",
    "limits",
    "process-handles",
    "cgroup-memory",
    "cgroup-pids",
    "cgroup-cpu",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """One layer that was tried."""

    name: str
    works: bool
    detail: str
    """What it has, or why it does not work."""


async def probe(interpreter: Interpreter) -> list[LayerReport]:
    """Try every layer with the isolates' interpreter. Raises `InterpreterUnusable`."""
    if sys.platform != "linux":
        return [LayerReport(name=name, works=False, detail="Linux only") for name in _LAYERS]
    with tempfile.TemporaryDirectory(prefix="tenantry-probe-") as root:
        try:
            with anyio.fail_after(_TIMEOUT_S):
                done = await anyio.run_process(
                    interpreter.start("probing", root),
                    env={},
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
        except TimeoutError as error:
            raise InterpreterUnusable(interpreter.executable, "the probe hangs") from error
    if done.returncode:
        problem = f"the probe failed: {last_line(done.stderr)}"
        raise InterpreterUnusable(interpreter.executable, problem)
    answers = msgspec.json.decode(done.stdout, type=list[tuple[str, str, str | None]])
    return [
        LayerReport(name=name, works=problem is None, detail=detail if problem is None else problem)
        for name, detail, problem in answers
    ]


async def probe_layers(interpreter: Interpreter) -> Layers:
    """Return which layers work. Raises `InterpreterUnusable`."""
    return layers_of(await probe(interpreter))


def layers_of(reports: Sequence[LayerReport]) -> Layers:
    """Sum reports up."""
    works = {report.name: report.works for report in reports}
    landlock = next(report for report in reports if report.name == "landlock")
    version = re.fullmatch(r"version (\d+)", landlock.detail) if landlock.works else None
    has_rest = works["no-new-privileges"] and works["limits"] and works["process-handles"]
    return Layers(
        own_namespaces=works["namespaces"],
        user_namespace=works["user-namespace"],
        own_users=works["own-users"],
        landlock=int(version[1]) if version else 0,
        filter=works["system-call-filter"] and has_rest,
        problems=tuple((report.name, report.detail) for report in reports if not report.works),
    )


def missing_for(level: Level, layers: Layers) -> tuple[str, ...]:
    """Return what a level lacks, and why, each."""
    needed = {
        Level.FULL: ("namespaces", "own-users"),
        Level.USER_NAMESPACE: ("user-namespace",),
        Level.NO_NAMESPACE: (),
        Level.NONE: (),
    }[level]
    everywhere = (
        "landlock",
        "system-call-filter",
        "no-new-privileges",
        "limits",
        "process-handles",
    )
    missing = [
        f"{name}: {problem}" for name, problem in layers.problems if name in (*needed, *everywhere)
    ]
    if level is Level.NO_NAMESPACE and 0 < layers.landlock < MIN_LANDLOCK_ALONE:
        missing.append(f"landlock: version {layers.landlock}; {MIN_LANDLOCK_ALONE} is needed")
    return tuple(missing)
