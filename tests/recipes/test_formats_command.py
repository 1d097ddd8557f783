from __future__ import annotations

from pathlib import Path

import pytest

from tenantry_recipes.formats.__main__ import main
from tenantry_recipes.formats.results import Results


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--items", "0"], "at least 1"),
        (["--items", "many"], "invalid"),
        (["--streams", "0"], "at least 1"),
        (["--streams", "100000"], "at most 256"),
        (["--lengths", "700"], "choose from 512, 1024, 2048, 4096"),
        (["--models", "gpt"], "choose from"),
        (["--tasks", "poetry"], "choose from"),
        (["--tasks", "lists", "--lengths", "4096"], "512 and 1024 only"),
        (["--colour"], "unrecognized arguments"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_possible(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    with pytest.raises(SystemExit) as ended:
        main([*options, "--results", str(path)])

    assert ended.value.code == 2
    told = capsys.readouterr()
    assert problem in told.err
    assert "workerctl eval formats" in told.err
    assert not path.exists()


def test_results_that_are_none_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"type": "other"}\n')

    assert main(["--results", str(path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"Error: {path} has a line 1 that is no result")
    assert told.count("\n") == 1


def test_a_file_that_another_run_adds_to_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    with Results(path).held():
        assert main(["--items", "1", "--results", str(path)]) == 1
    assert capsys.readouterr().err == (
        f"Error: another run adds to {path}; wait for its end, or name another file with --results\n"
    )
    assert path.read_bytes() == b""
    # whoever had it is gone
    with Results(path).held():
        pass


def test_a_folder_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--items", "1", "--results", str(tmp_path / "no" / "results.jsonl")]) == 1
    assert "No such file or directory" in capsys.readouterr().err
