"""The probe says what works, and what the runtime then refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from support.escapes.modes import MODES, TESTS, launched
from tenantry_runtime.workers.sandbox import (
    InterpreterUnusable,
    Level,
    find_interpreter,
    layers_of,
    probe,
)

pytestmark = pytest.mark.isolates

WORKERCTL = str(Path(sys.executable).with_name("workerctl"))
LAYERS = [
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
]


@pytest.mark.asyncio
async def test_every_layer_is_tried() -> None:
    reports = await probe(await find_interpreter())

    assert [report.name for report in reports] == LAYERS
    assert layers_of(reports).level is Level.FULL


def test_without_privileges_the_probe_finds_the_user_namespace() -> None:
    said = subprocess.run(
        launched(MODES["user-namespace"], [WORKERCTL, "sandbox", "probe", "--json"]),
        cwd=TESTS,
        capture_output=True,
        check=True,
    )
    report = msgspec.json.decode(said.stdout)

    works = {layer["name"]: layer["works"] for layer in report["layers"]}
    assert (works["namespaces"], works["user-namespace"], works["own-users"]) == (
        False,
        True,
        False,
    )
    assert report["level"] == "user-namespace"


def a_program(folder: Path, text: str) -> str:
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "text, problem",
    [
        ("echo broken >&2; exit 3", "ends with 3: broken"),
        (
            'echo \'{"version": [3, 10], "path": [], "libraries": [], "binary_interface": "", '
            '"msgspec_folder": null}\'',
            "it is Python 3.10",
        ),
        (
            'echo \'{"version": [3, 99], "path": [], "libraries": [], "binary_interface": "x", '
            '"msgspec_folder": null}\'',
            "has no msgspec",
        ),
    ],
)
async def test_an_interpreter_that_cannot_serve_is_refused(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(InterpreterUnusable, match=problem):
        await find_interpreter(a_program(tmp_path, text))


@pytest.mark.asyncio
async def test_an_interpreter_that_is_not_there_is_named() -> None:
    with pytest.raises(InterpreterUnusable, match="/no/such/python"):
        await find_interpreter("/no/such/python")


@pytest.mark.asyncio
async def test_an_interpreter_brings_its_library_and_nothing_that_was_installed() -> None:
    found = await find_interpreter()

    assert found.version == sys.version_info[:2]
    assert found.path[0] == os.path.dirname(os.__file__)
    assert not [path for path in found.path if path.endswith("-packages")]
    assert any("libc.so" in os.path.basename(name) for name in found.libraries)


def test_a_floor_that_is_not_reached_is_an_exit_status() -> None:
    said = subprocess.run(
        launched(MODES["user-namespace"], [WORKERCTL, "sandbox", "probe", "--floor", "full"]),
        cwd=TESTS,
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 1
    assert "level: user-namespace; floor: full" in said.stdout
