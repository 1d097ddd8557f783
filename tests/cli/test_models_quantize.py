"""`workerctl models quantize` where there is no runtime, mistakes that need none, and its progress."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from support.command_line import workerctl
from tenantry_cli.quantize import ConversionProgress

MIB = 1 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_base_install_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantry_cli.quantize.QUANTIZE_PACKAGES", ("click", "no_such_package"))
    result = workerctl("models", "quantize", "here", "there", env={})
    assert (result.exit_code, result.stdout) == (1, "")
    assert "pip install 'tenantry[runtime]'" in result.stderr


@pytest.mark.parametrize(
    ("option", "value", "possible"),
    [
        ("--experts", "int3", "'int4'"),
        ("--rest", "int4", "'bf16', 'fp8'"),
        ("--shard-gib", "0", "x>0"),
        ("--shard-gib", "nan", "a number of GiB"),
        ("--shard-gib", "inf", "a number of GiB"),
        ("--threads", "0", "x>=1"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_possible(
    option: str, value: str, possible: str
) -> None:
    result = workerctl("models", "quantize", "here", "there", option, value, env={})
    assert (result.exit_code, result.stdout) == (2, "")
    assert possible in result.stderr


@pytest.mark.parametrize("arguments", [[], ["here"]])
def test_both_directories_are_needed(arguments: list[str]) -> None:
    result = workerctl("models", "quantize", *arguments, env={})
    assert result.exit_code == 2
    assert "Missing argument" in result.stderr


def test_the_command_explains_itself() -> None:
    result = workerctl("models", "quantize", "-h", env={})
    assert result.exit_code == 0
    assert "DESTINATION.partial" in result.stdout


def test_a_log_has_a_line_per_file() -> None:
    log = io.StringIO()
    times = iter([100.0, 107.0])
    with ConversionProgress(log, clock=lambda: next(times)) as progress:
        progress.begin(30 * MIB, 2)
        progress.advance(10 * MIB)
        progress.finish_shard("model-1", 5 * MIB, is_kept=True)
        progress.advance(20 * MIB)
        progress.finish_shard("model-2", 3 << 30, is_kept=False)
    assert log.getvalue() == (
        "model-1: 5.0 MiB, file 1 of 2, kept\nmodel-2: 3.0 GiB, file 2 of 2, 7 s\n"
    )


def test_a_terminal_has_a_bar_that_ends_its_line() -> None:
    terminal = Terminal()
    with ConversionProgress(terminal) as progress:
        progress.begin(40 * MIB, 2)
        progress.advance(20 * MIB)
        progress.finish_shard("model-1", 5 * MIB, is_kept=False)
        progress.advance(20 * MIB)
        progress.finish_shard("model-2", 5 * MIB, is_kept=False)
    shown = terminal.getvalue()
    assert "100%" in shown
    assert "file 2 of 2" in shown
    assert "file 3" not in shown
    assert shown.removesuffix("\x1b[?25h").endswith("\n")
    assert "model-1" not in shown


def test_an_interrupt_says_what_is_kept_and_where() -> None:
    log = io.StringIO()
    with ConversionProgress(log) as progress:
        progress.begin(MIB, 3)
        progress.finish_shard("model-1", MIB, is_kept=False)
        progress.say_interrupted(Path("there"))
    assert log.getvalue().splitlines()[-1] == (
        "Interrupted: 1 of 3 files are kept in there.partial; run the same command to go on."
    )


def test_an_interrupt_before_the_first_file_does_not_speak_of_files() -> None:
    log = io.StringIO()
    with ConversionProgress(log) as progress:
        progress.say_interrupted(Path("there"))
    assert log.getvalue() == "Interrupted before the first file was finished.\n"
