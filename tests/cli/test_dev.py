"""`workerctl dev`: hands its options to the runtime, and says what to install where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.command_line import workerctl


class Served:
    """Stands in for the runtime, and notes what it was asked to serve."""

    def __init__(self, exit_code: int = 0) -> None:
        self.options: dict[str, object] = {}
        self.exit_code = exit_code

    def serve(self, **options: object) -> int:
        self.options = options
        return self.exit_code


def with_runtime(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    module = ModuleType("tenantry_runtime.dev")
    vars(module)["serve"] = served.serve
    monkeypatch.setitem(sys.modules, "tenantry_runtime.dev", module)
    monkeypatch.setattr("tenantry_cli.dev.RUNTIME_PACKAGES", ())


def test_the_defaults_are_loopback_8787_and_a_hidden_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = Served()
    with_runtime(monkeypatch, served)
    assert workerctl("dev", env={}).exit_code == 0
    assert served.options == {
        "host": "127.0.0.1",
        "port": 8787,
        "state_dir": Path(".tenantry"),
        "store": None,
        "catalog": None,
        "cache": "bf16",
        "device": "cpu",
        "pools": False,
        "unsafe_no_sandbox": False,
        "demo": False,
    }


def test_options_reach_the_runtime_and_its_exit_code_comes_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served = Served(exit_code=3)
    with_runtime(monkeypatch, served)
    catalog = tmp_path / "catalog.json"
    catalog.write_text("{}")
    options = ["--host", "0.0.0.0", "--port", "9000", "--state-dir", str(tmp_path)]
    options += [
        "--catalog",
        str(catalog),
        "--cache",
        "fp8",
        "--device",
        "cuda:1",
        "--pools",
        "--unsafe-no-sandbox",
        "--demo",
    ]
    options += ["--store", "postgresql://db/tenantry"]
    assert workerctl("dev", *options, env={}).exit_code == 3
    assert served.options == {
        "host": "0.0.0.0",
        "port": 9000,
        "state_dir": tmp_path,
        "store": "postgresql://db/tenantry",
        "catalog": catalog,
        "cache": "fp8",
        "device": "cuda:1",
        "pools": True,
        "unsafe_no_sandbox": True,
        "demo": True,
    }


def test_a_base_install_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantry_cli.dev.RUNTIME_PACKAGES", ("click", "no_such_package"))
    result = workerctl("dev", env={})
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: the runtime is not installed (no_such_package missing); "
        "run: pip install 'tenantry[runtime]'\n"
    )


def test_a_package_that_only_the_runtime_knows_is_named_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_runtime(monkeypatch, Served())

    class Missing(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ModuleNotFoundError("No module named 'tiktoken'", name="tiktoken")

    monkeypatch.setitem(sys.modules, "tenantry_runtime.dev", Missing("tenantry_runtime.dev"))
    result = workerctl("dev", env={})
    assert result.exit_code == 1
    assert "tiktoken missing" in result.stderr


def test_a_defect_of_the_runtime_is_not_taken_for_a_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_runtime(monkeypatch, Served())
    monkeypatch.setitem(sys.modules, "tenantry_runtime.dev", None)
    result = workerctl("dev", env={})
    assert isinstance(result.exception, ModuleNotFoundError)
