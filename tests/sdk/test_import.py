"""Importing the SDK stays cheap: no torch, no server, nothing of the runtime."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tenantry

HEAVY = ("torch", "triton", "numpy", "grpc", "starlette", "granian", "sqlalchemy", "jinja2")


@pytest.mark.parametrize("statement", ["import tenantry", "import tenantry_cli.main"])
def test_importing_loads_nothing_of_the_runtime(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert not loaded & {*HEAVY, "tenantry_runtime", "tenantry_kernels"}


def test_what_workers_are_written_with_needs_the_standard_library_only() -> None:
    program = (
        "import sys\nbefore = set(sys.modules)\nimport tenantry.workers, tenantry.workers.asgi, "
        "tenantry.workers._worker, tenantry.workers._aliases\nprint(*(set(sys.modules) - before))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in ran.stdout.split()}
    assert loaded - set(sys.stdlib_module_names) == {"tenantry"}


def test_an_isolate_without_the_client_says_what_to_use(tmp_path: Path) -> None:
    sdk = Path(tenantry.__file__).parent
    (tmp_path / "tenantry").mkdir()
    for name in ("__init__.py", "_version.py"):
        shutil.copy(sdk / name, tmp_path / "tenantry" / name)
    shutil.copytree(sdk / "workers", tmp_path / "tenantry" / "workers")
    program = f"import sys\nsys.path = [{str(tmp_path)!r}, *sys.path]\nimport tenantry.workers\n"
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program + "from tenantry import AI"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: tenantry.AI is not in an isolate" in ran.stderr
    assert "env.AI.run asks models there" in ran.stderr


def test_the_command_line_starts_without_the_sdk() -> None:
    program = "import tenantry_cli.main\nimport sys\nprint(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"httpx", "msgspec"} & {*ran.stdout.split()}
