"""`workerctl init` and `completion`."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

from support.fake_control_plane import ControlPlaneFake
from support.worker_folder import WorkerFolder


def test_a_new_worker_can_be_deployed_as_it_is(
    plane: ControlPlaneFake, folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = folder.run("init", "My Agent")
    monkeypatch.chdir(folder.path / "My Agent")
    deployed = folder.run("deploy")

    assert made.exit_code == 0, made.output
    # as a shell takes it
    assert "\n  cd 'My Agent'\n" in made.output
    assert deployed.exit_code == 0, deployed.output
    assert deployed.stderr == ""
    (upload,) = plane.uploads()
    assert upload.path == "/workers/scripts/my-agent"
    assert upload.metadata["bindings"][0] == {"name": "AI", "type": "ai"}
    names = {
        node.name
        for node in ast.parse(upload.files["entry.py"]).body
        if isinstance(node, ast.ClassDef)
    }
    assert names == {"Default"}


def test_a_new_workers_own_test_passes(folder: WorkerFolder) -> None:
    folder.run("init", "new")

    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder.path / "new",
        stdout=subprocess.PIPE,
        check=False,
    )

    assert b"1 passed" in tested.stdout, tested.stdout.decode()


def test_no_file_is_overwritten(folder: WorkerFolder) -> None:
    before = sorted(folder.path.rglob("*"))

    result = folder.run("init")

    assert result.exit_code == 1
    assert "has wrangler.jsonc, src/entry.py already; nothing was written" in result.stderr
    assert sorted(folder.path.rglob("*")) == before


def test_programs_are_told_what_was_written(folder: WorkerFolder) -> None:
    told = folder.run_json("init", "new", "--name", "other")

    config = json.loads(
        "\n".join(
            line
            for line in (folder.path / "new" / "wrangler.jsonc").read_text().splitlines()
            if not line.strip().startswith("//")
        )
    )
    assert config["name"] == told["worker"] == "other"
    assert all((folder.path / "new" / name).is_file() for name in told["files"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(folder: WorkerFolder, shell: str) -> None:
    script = folder.run("completion", shell)
    asked = folder.run(
        env={
            "_WORKERCTL_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "workerctl ver",
            "COMP_CWORD": "ver" if shell == "fish" else "1",
        }
    )

    assert "_WORKERCTL_COMPLETE" in script.stdout
    assert "versions" in asked.stdout
