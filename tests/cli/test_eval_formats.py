"""`workerctl eval formats` without recipes, and how it ends with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import workerctl


def test_without_recipes_it_says_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenantry_cli.evaluate.FORMATS_PACKAGES", ("click", "no_such_package"))
    result = workerctl("eval", "formats", "--items", "3", env={})

    assert (result.exit_code, result.stdout) == (1, "")
    assert "no_such_package missing" in result.stderr
    assert "pip install --editable '.[recipes]'" in result.stderr


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module in the recipes' place, which writes its arguments to a file and ends with their number."""
    written = tmp_path / "arguments"
    (tmp_path / "stand_in.py").write_text(
        "import pathlib, sys\n"
        f"pathlib.Path({str(written)!r}).write_text('\\n'.join(sys.argv[1:]))\n"
        "sys.exit(len(sys.argv) - 1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("tenantry_cli.evaluate.FORMATS_MODULE", "stand_in")
    monkeypatch.setattr("tenantry_cli.evaluate.FORMATS_PACKAGES", ("click",))
    return written


@pytest.mark.parametrize(
    "options", [["--help"], ["--streams", "1", "32", "--json"], ["-h"], ["--no-such", "--", "x"]]
)
def test_options_and_the_exit_code_are_the_recipes(options: list[str], stand_in: Path) -> None:
    result = workerctl("eval", "formats", *options, env={})

    assert stand_in.read_text().splitlines() == [each for each in options if each != "--"]
    assert result.exit_code == len(options) - options.count("--")


def test_the_group_explains_itself() -> None:
    result = workerctl("eval", "--help", env={})

    assert result.exit_code == 0
    assert "formats" in result.stdout
