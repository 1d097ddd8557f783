"""Ways to run the escape suite: as which user, and confined how."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .hostile_engine import Findings
from .runner import Report

# names of modes that this machine cannot run, each with what the probe says there
ABSENT_MODES = Path(__file__).parents[2] / "runtime/workers/sandbox/absent_modes.json"

TESTS = Path(__file__).parents[2]
NOBODY = 65534
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way."""

    uid: int
    level: str


MODES = {
    "root": Mode(uid=0, level="full"),
    "user-namespace": Mode(uid=NOBODY, level="user-namespace"),
    "no-namespace": Mode(uid=NOBODY, level="no-namespace"),
    # root in a container: users of their own for isolates, but no namespaces
    "no-namespace-as-root": Mode(uid=0, level="no-namespace"),
}


def absent_modes() -> dict[str, list[str]]:
    """Return the modes that are named as impossible here, with the probe's reasons."""
    return msgspec.json.decode(ABSENT_MODES.read_bytes(), type=dict[str, list[str]])


def present_modes() -> list[str]:
    """Return the names of the others."""
    return [name for name in MODES if name not in absent_modes()]


def launched(mode: Mode, arguments: list[str]) -> list[str]:
    """Return what runs a command in a mode, in `TESTS`; its first argument is a path."""
    trees = f"{sys.base_prefix}:{TESTS.parent}"
    launcher = [sys.executable, "-m", "support.escapes.as_nobody", str(mode.uid), trees]
    return [*launcher, *arguments]


def command(mode: Mode, module: str, *arguments: str) -> list[str]:
    """Return what runs a module in a mode, in `TESTS`."""
    return launched(mode, [sys.executable, "-m", module, *arguments])


def report_of(mode: Mode) -> Report:
    """Run all attempts in a mode. Raises `AssertionError` with what was said where it cannot."""
    return msgspec.json.decode(_output(mode, "support.escapes.runner"), type=Report)


def findings_of(mode: Mode) -> Findings:
    """Run all hostile workers in a mode. Raises like `report_of`."""
    return msgspec.json.decode(_output(mode, "support.escapes.hostile_engine"), type=Findings)


def _output(mode: Mode, module: str) -> bytes:
    done = subprocess.run(
        command(mode, module, mode.level),
        cwd=TESTS,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{mode} does not run here: {done.stderr.decode()}"
    return done.stdout
