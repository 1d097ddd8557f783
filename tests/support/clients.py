"""Real clients as programs of their own, each of which prints what its scenarios came to.

Python's clients live in an environment that `TENANTRY_CLIENTS` names, Node's beside their programs.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tenantry.credentials import Credentials

CONFORMANCE = Path(__file__).resolve().parents[1] / "conformance"
MODELS = ("@cf/moonshotai/kimi-k2.6", "@cf/zai-org/glm-5.2")

PATIENCE_S = 120.0
"""For one client's scenarios with one model, which take a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the scenarios of one client came to with one model."""

    client: str
    model: str
    scenarios: Mapping[str, Mapping[str, Any]]

    # Any: what a scenario returns is its test's business
    def __getitem__(self, scenario: str) -> Any:
        outcome = self.scenarios[scenario]
        assert "failure" not in outcome, f"{self.client}, {scenario}:\n{outcome['failure']}"
        return outcome.get("answer")


AskClient: TypeAlias = Callable[[str], Answers]
"""Run a client's program with the module's model."""


def ask_client(program: str, model: str, credentials: Credentials) -> Answers:
    """Run a client's scenarios to their end."""
    command = _node(program) if program.endswith(".mjs") else _python(program)
    ran = subprocess.run(
        command,
        env={
            "PATH": os.environ["PATH"],
            "TENANTRY_BASE_URL": credentials.base_url,
            "TENANTRY_ACCOUNT_ID": credentials.account_id,
            "TENANTRY_API_TOKEN": credentials.api_token,
            "MODEL": model,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr
    return Answers(client=program, model=model, scenarios=json.loads(ran.stdout))


def _python(program: str) -> list[str]:
    folder = os.environ.get("TENANTRY_CLIENTS")
    assert folder, (
        "TENANTRY_CLIENTS is not set: run `make test-conformance`, or let it name an environment "
        f"with what {CONFORMANCE / 'requirements.txt'} lists"
    )
    interpreter = Path(folder).absolute() / "bin" / "python"
    assert interpreter.exists(), f"TENANTRY_CLIENTS is {folder!r}, but there is no {interpreter}"
    return [str(interpreter), str(CONFORMANCE / "clients" / program)]


def _node(program: str) -> list[str]:
    folder = CONFORMANCE / "node"
    assert (folder / "node_modules").exists(), (
        f"Node's clients are not there: run `make test-conformance`, or `npm ci` in {folder}"
    )
    return ["node", str(folder / program)]
