"""Which files of a folder go along, under which names and types."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.fake_control_plane import ControlPlaneFake
from support.worker_folder import ENTRY, WorkerFolder


def uploaded(plane: ControlPlaneFake, folder: WorkerFolder) -> dict[str, str]:
    """Deploy, and return content types by names."""
    result = folder.run("deploy")
    assert result.exit_code == 0, result.output
    parts = plane.uploads()[-1].parts
    return {name: part.content_type for name, part in parts.items() if name != "metadata"}


def test_python_files_beside_main_and_below_go_along(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    for name in ("src/util.py", "src/pages/home.py", "src/pages/home.html", "outside.py"):
        folder.write(name, "x = 1\n")
    for name in ("src/notes.md", "src/.secret.py", "src/__pycache__/a.py", "src/.venv/b.py"):
        folder.write(name, "x = 1\n")
    folder.write("src/env/pyvenv.cfg", "")
    folder.write("src/env/lib/site.py", "x = 1\n")

    assert uploaded(plane, folder) == {
        "entry.py": "text/x-python",
        "util.py": "text/x-python",
        "pages/home.py": "text/x-python",
        "pages/home.html": "text/plain",
    }


def test_vendored_modules_stand_beside_the_configuration(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    for name in ("x/__init__.py", "x/data.json", "x/old.pyc", "x/tests/test_a.py"):
        folder.write(f"python_modules/{name}", "")
    folder.configure(python_modules={"exclude": ["**/*.pyc", "**/tests/**"]})

    assert uploaded(plane, folder) == {
        "entry.py": "text/x-python",
        "python_modules/x/__init__.py": "text/x-python",
        "python_modules/x/data.json": "application/octet-stream",
    }


def test_compiled_files_are_left_out_unless_asked_for(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.write("python_modules/x.pyc", "")
    assert "python_modules/x.pyc" not in uploaded(plane, folder)

    folder.configure(python_modules={"exclude": []})
    assert "python_modules/x.pyc" in uploaded(plane, folder)


def test_rules_take_more_files_along(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    folder.write("src/prompts/a.md", "# hi")
    folder.write("src/table.csv", "a,b")
    folder.configure(
        rules=[{"type": "Text", "globs": ["**/*.md"]}, {"type": "Data", "globs": ["*.csv"]}]
    )

    files = uploaded(plane, folder)

    assert files["prompts/a.md"] == "text/plain"
    assert files["table.csv"] == "application/octet-stream"


def test_main_may_stand_in_the_projects_own_folder(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.write("main.py", ENTRY)
    folder.write("python_modules/x.py", "")
    folder.write("node_modules/y.py", "")
    folder.configure(main="main.py")

    assert sorted(uploaded(plane, folder)) == ["main.py", "python_modules/x.py", "src/entry.py"]


def test_a_bundle_that_is_too_large_names_its_largest_files(
    plane: ControlPlaneFake, folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenantry_cli.workers.bundle.bundle.MAX_BYTES", 3 << 20)
    folder.write("src/model.bin", "x" * (4 << 20))

    result = folder.run("deploy")

    assert result.exit_code == 1
    assert "the limit is 3 MiB" in result.stderr
    assert "4.00 MiB  model.bin" in result.stderr
    assert plane.calls == []


def test_a_requirements_file_is_said_to_be_of_no_use(folder: WorkerFolder) -> None:
    folder.write("requirements.txt", "jinja2\n")

    result = folder.run("deploy")

    assert result.exit_code == 0
    assert "requirements.txt is not read: put its lines into pyproject.toml" in result.stderr


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("[project", "it is not TOML"),
        ('[project]\ndependencies = "jinja2"\n', "project.dependencies: it must be a list"),
        ("[project]\nrequires-python = 3\n", "project.requires-python: it must be a text"),
    ],
)
def test_a_pyproject_that_is_wrong_is_named(folder: WorkerFolder, body: str, problem: str) -> None:
    folder.write("pyproject.toml", body)

    result = folder.run("deploy", "--dry-run")

    assert result.exit_code == 2
    assert f"pyproject.toml: {problem}" in result.stderr


def test_a_file_that_cannot_be_read_is_named(folder: WorkerFolder, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    result = folder.run("deploy", "--dry-run", "--outdir", str(blocked / "out"))

    assert result.exit_code == 1
    assert result.stderr == f"Error: {blocked / 'out'}: Not a directory\n"
