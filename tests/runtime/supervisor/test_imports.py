"""A supervisor waits for its children: it must not spend their first second on what they load."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import tenantry_runtime.dev, tenantry_runtime.supervisor
print(sorted({"grpc", "httpx", "numpy", "sqlalchemy", "torch"} & set(sys.modules)))
"""


def test_a_supervisor_starts_without_what_its_children_load() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)

    assert ran.stdout.decode().strip() == "[]"
