"""Routing runs in an edge and in a simulator: it must need neither clock nor network."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import tenantry_runtime.routing.router
print(sorted({"anyio", "asyncio", "grpc", "numpy", "torch"} & set(sys.modules)))
"""


def test_routing_loads_no_event_loop_no_network_and_no_arithmetic() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)

    assert ran.stdout.decode().strip() == "[]"
