"""Importing the SDK stays cheap: no torch, no server, nothing of the runtime."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "numpy", "grpc", "starlette", "granian", "sqlalchemy", "jinja2")


@pytest.mark.parametrize("statement", ["import tenantry", "import tenantry_cli.main"])
def test_importing_loads_nothing_of_the_runtime(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert not loaded & {*HEAVY, "tenantry_runtime", "tenantry_kernels"}


def test_the_command_line_starts_without_the_sdk() -> None:
    program = "import tenantry_cli.main\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "httpx" not in ran.stdout.split()
