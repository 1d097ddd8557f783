"""What is read of a folder's configuration, and what is said of what is odd in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.fake_control_plane import ControlPlaneFake
from support.worker_folder import WorkerFolder

BODIES = {
    "wrangler.json": '{"name": "w", "main": "src/entry.py", "vars": {"A": "//x", "B": 1}}',
    "wrangler.jsonc": """{
        // a comment, with "quotes" and a comma,
        "name": "w", /* another,
        */ "main": "src/entry.py",
        "vars": {"A": "//x", "B": 1,},
    }""",
    "wrangler.toml": 'name = "w"\nmain = "src/entry.py"\n[vars]\nA = "//x"\nB = 1\n',
    "pyproject.toml": """[project]
name = "other"
[tool.tenantry]
name = "w"
main = "src/entry.py"
vars = { A = "//x", B = 1 }
""",
}


@pytest.fixture
def bare(folder: WorkerFolder) -> WorkerFolder:
    """A folder without a configuration."""
    (folder.path / "wrangler.jsonc").unlink()
    return folder


@pytest.mark.parametrize("name", BODIES)
def test_each_kind_of_file_says_the_same(
    bare: WorkerFolder, plane: ControlPlaneFake, name: str
) -> None:
    bare.write(name, BODIES[name])

    assert bare.run("deploy").exit_code == 0

    assert plane.uploads()[0].path == "/workers/scripts/w"
    assert plane.uploads()[0].metadata["bindings"] == [
        {"name": "A", "type": "plain_text", "text": "//x"},
        {"name": "B", "type": "json", "json": 1},
    ]


def test_a_project_gives_its_name_where_the_table_has_none(
    bare: WorkerFolder, plane: ControlPlaneFake
) -> None:
    body = '[project]\nname = "My.Project"\n[tool.tenantry]\nmain = "src/entry.py"\n'
    bare.write("pyproject.toml", body)

    bare.run("deploy")

    assert list(plane.workers) == ["my-project"]


def test_the_nearest_file_above_is_found(
    folder: WorkerFolder, plane: ControlPlaneFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.path / "src")

    assert folder.run("deploy").exit_code == 0
    assert "hello" in plane.workers


def test_no_file_is_explained(bare: WorkerFolder) -> None:
    result = bare.run("deploy")

    assert result.exit_code == 2
    for words in (
        "wrangler.jsonc",
        "[tool.tenantry]",
        str(bare.path),
        "workerctl init",
        "--config",
    ):
        assert words in result.stderr


def test_a_second_file_is_said_to_be_ignored(folder: WorkerFolder) -> None:
    folder.write("wrangler.toml", 'name = "other"\n')

    assert "wrangler.toml is there too, and is not read" in folder.run("deploy").stderr


@pytest.mark.parametrize(
    ("keys", "warning"),
    [
        ({"compatability_date": "2026"}, "is it 'compatibility_date'?"),
        ({"zzzzz": 1}, "zzzzz is not a key that is known\n"),
        ({"kv_namespaces": [{"binding": "K", "id": "a", "idd": 1}]}, "kv_namespaces[0].idd"),
        (
            {"ai": {"binding": "AI", "bindin": 1}},
            "ai.bindin is not a key that is known; is it 'bin",
        ),
        ({"placement": {"mode": "smart"}}, "placement has no effect"),
        ({"env": {"dev": {"ma1n": "x"}}}, ""),
    ],
    ids=["typo", "strange", "nested", "object", "unheeded", "other-environment"],
)
def test_what_nobody_reads_is_warned_of(
    folder: WorkerFolder, keys: dict[str, Any], warning: str
) -> None:
    folder.configure(**keys)

    result = folder.run("deploy")

    assert result.exit_code == 0
    assert warning in result.stderr
    assert bool(result.stderr) == bool(warning)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("d1_databases", [{"binding": "DB"}], ["D1 databases", "kv_namespaces"]),
        ("r2_buckets", [{"binding": "B"}], ["R2 buckets", "S3"]),
        ("durable_objects", {"bindings": [{"name": "C"}]}, ["Durable Objects", "KV"]),
        ("queues", {"producers": [{"queue": "q"}]}, ["Queues", "triggers.crons"]),
        ("assets", {"directory": "public"}, ["static assets"]),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_remedy(
    folder: WorkerFolder, plane: ControlPlaneFake, key: str, value: object, words: list[str]
) -> None:
    folder.configure(**{key: value})

    result = folder.run("deploy")

    assert result.exit_code == 2
    for word in ["wrangler.jsonc", key, *words]:
        assert word in result.stderr
    assert plane.calls == []


def test_an_empty_key_of_what_cannot_be_had_is_no_matter(folder: WorkerFolder) -> None:
    folder.configure(d1_databases=[], durable_objects={"bindings": []}, queues={"producers": []})

    assert folder.run("deploy").exit_code == 0


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"main": 3}, ["main: expected text, got a whole number"]),
        ({"main": "src/none.py"}, ["there is no file", "src/none.py"]),
        ({"main": "src/index.ts"}, ["index.ts is not Python"]),
        ({"name": "Has Spaces"}, ["'Has Spaces'", "a-z"]),
        ({"kv_namespaces": [{"id": "x"}]}, ["kv_namespaces[0]", "binding"]),
        ({"vars": {"A": 1}, "ai": {"binding": "A"}}, ["A: two bindings have this name"]),
    ],
    ids=["type", "no-file", "typescript", "name", "missing", "twice"],
)
def test_what_is_wrong_is_said_by_its_key_and_ends_with_two(
    folder: WorkerFolder, keys: dict[str, Any], words: list[str]
) -> None:
    folder.configure(**keys)

    result = folder.run("deploy")

    assert result.exit_code == 2
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("name", "body", "where"),
    [
        ("wrangler.jsonc", '{\n  // x\n  "name": oops\n}', "line 3, column 11"),
        ("wrangler.toml", "name = ", "it is not TOML"),
        ("wrangler.json", "[]", "it must be an object"),
    ],
)
def test_a_file_that_is_not_what_it_is_called_says_where(
    bare: WorkerFolder, name: str, body: str, where: str
) -> None:
    bare.write(name, body)

    result = bare.run("deploy")

    assert result.exit_code == 2
    assert f"Error: {name}: " in result.stderr
    assert where in result.stderr


class TestEnvironments:
    def test_bindings_are_its_own_and_the_rest_is_inherited(
        self, folder: WorkerFolder, plane: ControlPlaneFake
    ) -> None:
        folder.configure(
            compatibility_date="2026-01-01",
            vars={"A": "top"},
            ai={"binding": "AI"},
            env={"staging": {"vars": {"B": "own"}}},
        )

        result = folder.run("deploy", "--env", "staging")

        metadata = plane.uploads()[0].metadata
        assert list(plane.workers) == ["hello-staging"]
        assert metadata["bindings"] == [{"name": "B", "type": "plain_text", "text": "own"}]
        assert metadata["compatibility_date"] == "2026-01-01"
        assert "ai stands at the top level, and not in env.staging" in result.stderr

    def test_one_may_have_a_name_of_its_own(
        self, folder: WorkerFolder, plane: ControlPlaneFake
    ) -> None:
        folder.configure(env={"prod": {"name": "live"}})

        folder.run("deploy", "-e", "prod")

        assert list(plane.workers) == ["live"]

    def test_a_route_of_its_own_replaces_all_of_the_top_level(
        self, folder: WorkerFolder, plane: ControlPlaneFake
    ) -> None:
        folder.configure(routes=["top.example/*"], env={"prod": {"route": "prod.example/*"}})

        told = folder.run_json("deploy", "-e", "prod")

        assert told["urls"] == ["prod.example/*"]

    def test_one_that_is_not_there_is_told_which_are(self, folder: WorkerFolder) -> None:
        folder.configure(env={"prod": {}, "staging": {}})

        result = folder.run("deploy", "-e", "stagin")

        assert result.exit_code == 2
        assert "no environment 'stagin'; there are: prod, staging" in result.stderr

    def test_what_cannot_be_had_is_refused_in_the_one_that_has_it(
        self, folder: WorkerFolder
    ) -> None:
        folder.configure(env={"prod": {"d1_databases": [{"binding": "DB"}]}})

        assert folder.run("deploy").exit_code == 0
        assert "env.prod.d1_databases" in folder.run("deploy", "-e", "prod").stderr

    def test_bindings_of_the_top_level_that_cannot_be_had_do_not_matter_to_it(
        self, folder: WorkerFolder
    ) -> None:
        folder.configure(d1_databases=[{"binding": "DB"}], env={"prod": {}})
        assert folder.run("deploy", "-e", "prod").exit_code == 0

        folder.configure(assets={"directory": "x"}, env={"prod": {}})
        assert folder.run("deploy", "-e", "prod").exit_code == 2


def test_config_names_another_file(
    folder: WorkerFolder, plane: ControlPlaneFake, tmp_path: Path
) -> None:
    folder.write("other.jsonc", '{"name": "second", "main": "src/entry.py"}')

    assert folder.run("deploy", "--config", "other.jsonc").exit_code == 0
    assert list(plane.workers) == ["second"]
    assert "no file none.jsonc" in folder.run("deploy", "-c", "none.jsonc").stderr
