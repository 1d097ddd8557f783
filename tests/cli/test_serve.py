"""`workerctl serve`: hands file and options to the runtime, and says what to install without one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.command_line import workerctl


class Served:
    """Stands in for the runtime, and notes what it was asked to serve."""

    def __init__(self, exit_code: int = 0) -> None:
        self.file: Path | None = None
        self.options: dict[str, object] = {}
        self.exit_code = exit_code

    def serve(self, file: Path, **options: object) -> int:
        self.file = file
        self.options = options
        return self.exit_code


def with_runtime(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    module = ModuleType("tenantry_runtime.supervisor")
    vars(module)["serve"] = served.serve
    monkeypatch.setitem(sys.modules, "tenantry_runtime.supervisor", module)
    monkeypatch.setattr("tenantry_cli.serve.RUNTIME_PACKAGES", ())


def test_a_file_alone_leaves_the_choice_to_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served()
    with_runtime(monkeypatch, served)
    assert workerctl("serve", "cluster.toml", env={}).exit_code == 0
    assert served.file == Path("cluster.toml")
    assert served.options == {"only": (), "grant": None, "unsafe_no_sandbox": False}


def test_options_reach_the_runtime_and_its_exit_code_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served(exit_code=3)
    with_runtime(monkeypatch, served)
    options = ["--only", "edge", "--only", "prefill", "--grant", "acme", "--unsafe-no-sandbox"]
    assert workerctl("serve", "cluster.toml", *options, env={}).exit_code == 3
    assert served.options == {
        "only": ("edge", "prefill"),
        "grant": "acme",
        "unsafe_no_sandbox": True,
    }


def test_a_base_install_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantry_cli.serve.RUNTIME_PACKAGES", ("click", "no_such_package"))
    result = workerctl("serve", "cluster.toml", env={})
    assert result.exit_code == 1
    assert "no_such_package missing" in result.stderr


def test_a_file_is_asked_for() -> None:
    result = workerctl("serve", env={})
    assert result.exit_code == 2
    assert "Missing argument 'FILE'" in result.stderr
