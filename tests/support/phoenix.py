"""Phoenix, a real backend for traces, in an environment of its own that `TENANTRY_PHOENIX` names."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from support.http_peer import an_unused_port

PATIENCE_S = 120.0
"""For a start that takes ten seconds on a machine with nothing else to do."""

MISSING = (
    "TENANTRY_PHOENIX is not set: make an environment with `python -m venv DIRECTORY` and "
    "`DIRECTORY/bin/pip install arize-phoenix==20.26.1` (850 MB), and let the variable name DIRECTORY"
)


@dataclass(frozen=True, slots=True)
class Phoenix:
    url: str
    process: subprocess.Popen[bytes]

    @property
    def traces_endpoint(self) -> str:
        return f"{self.url}/v1/traces"

    def spans(self, trace_id: str, num_spans: int) -> list[dict[str, Any]]:
        """Return a trace's spans, as the API has them, once there are so many."""
        deadline_s = time.monotonic() + PATIENCE_S
        found: list[dict[str, Any]] = []
        while time.monotonic() < deadline_s:
            response = httpx.get(f"{self.url}/v1/projects/default/spans", params={"limit": 1000})
            if response.status_code == 200:
                spans = response.json()["data"]
                found = [span for span in spans if span["context"]["trace_id"] == trace_id]
                if len(found) >= num_spans:
                    return found
            # what it has taken is in its database a moment later; nothing tells when
            time.sleep(0.5)
        raise AssertionError(f"{num_spans} spans wanted: {names_of(found)}")


def names_of(spans: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(span["name"] for span in spans)


@contextmanager
def a_phoenix(folder: Path) -> Iterator[Phoenix]:
    """Start one with an empty database in the folder; leaving kills it if it still runs."""
    environment = os.environ.get("TENANTRY_PHOENIX")
    assert environment is not None, MISSING
    program = Path(environment) / "bin" / "phoenix"
    assert program.exists(), f"TENANTRY_PHOENIX is {environment!r}, but there is no {program}"
    port, grpc_port = an_unused_port(), an_unused_port()
    own = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    with (folder / "phoenix.log").open("wb") as log:
        with subprocess.Popen([program, "serve"], env=own, stdout=log, stderr=log) as process:
            try:
                phoenix = Phoenix(f"http://127.0.0.1:{port}", process)
                _wait_until_up(phoenix, folder)
                yield phoenix
            finally:
                process.kill()


def _wait_until_up(phoenix: Phoenix, folder: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s and phoenix.process.poll() is None:
        try:
            if httpx.get(f"{phoenix.url}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            # nothing tells when it is up but its answer
            time.sleep(0.5)
    raise AssertionError((folder / "phoenix.log").read_text())
