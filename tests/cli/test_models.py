"""`workerctl models` where there is no runtime, and mistakes that need none to be found."""

from __future__ import annotations

import pytest

from support.command_line import workerctl


def test_a_base_install_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantry_cli.models.PLAN_PACKAGES", ("click", "no_such_package"))
    result = workerctl("models", "plan", "kimi-k2.6", env={})
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: the runtime is not installed (no_such_package missing); "
        "run: pip install 'tenantry[runtime]'\n"
    )


@pytest.mark.parametrize(
    ("option", "value", "possible"),
    [
        ("--gpu", "a100", "'h100', 'h200', 'b200'"),
        ("--cache", "int4", "'bf16', 'fp8'"),
        ("--weights", "int3", "'int4', 'fp8', 'bf16'"),
        ("--rest", "int4", "'bf16', 'fp8'"),
        ("--gpus", "0", "x>=1"),
        ("--memory-fraction", "0", "0<x<=1"),
        ("--memory-fraction", "1.5", "0<x<=1"),
        ("--activations", "-1", "x>=0"),
        ("--activations", "inf", "a number of GiB"),
        ("--activations", "nan", "a number of GiB"),
        ("--length", "0", "x>=1"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_possible(
    option: str, value: str, possible: str
) -> None:
    result = workerctl("models", "plan", "kimi-k2.6", option, value, env={})
    assert (result.exit_code, result.stdout) == (2, "")
    assert possible in result.stderr


@pytest.mark.parametrize("arguments", [["models", "-h"], ["models", "plan", "-h"]])
def test_the_commands_explain_themselves(arguments: list[str]) -> None:
    result = workerctl(*arguments, env={})
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: workerctl models")
