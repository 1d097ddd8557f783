"""Secrets of a worker: values come by a pipe or a prompt, and never out again."""

from __future__ import annotations

import json

import pytest

from support.fake_control_plane import ControlPlaneFake
from support.worker_folder import WorkerFolder

VALUE = "correct horse battery staple"


@pytest.fixture
def deployed(folder: WorkerFolder) -> WorkerFolder:
    assert folder.run("deploy").exit_code == 0
    return folder


@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=["nothing", "newline", "windows"])
def test_a_secret_comes_by_a_pipe_without_its_last_line_end(
    plane: ControlPlaneFake, deployed: WorkerFolder, end: str
) -> None:
    put = deployed.run("secret", "put", "API_KEY", stdin=f"line\n{VALUE}{end}")

    assert (put.exit_code, put.output) == (0, "Uploaded secret API_KEY of hello\n")
    assert plane.workers["hello"].secrets == {"API_KEY": f"line\n{VALUE}"}


def test_the_worker_may_be_named_without_a_configuration(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    (deployed.path / "wrangler.jsonc").unlink()

    assert deployed.run("secret", "put", "KEY", stdin=VALUE).exit_code == 2
    assert deployed.run("secret", "put", "KEY", "--name", "hello", stdin=VALUE).exit_code == 0
    assert plane.workers["hello"].secrets == {"KEY": VALUE}


def test_listings_are_json_in_a_pipe_as_wranglers_are(deployed: WorkerFolder) -> None:
    deployed.run("secret", "put", "B_KEY", stdin=VALUE)
    deployed.run("secret", "put", "A_KEY", stdin=VALUE)

    listed = json.loads(deployed.run("secret", "list").stdout)
    table = deployed.run("secret", "list", "--format", "pretty").stdout

    assert listed == [
        {"name": "A_KEY", "type": "secret_text"},
        {"name": "B_KEY", "type": "secret_text"},
    ]
    assert [line.split()[0] for line in table.splitlines()] == ["NAME", "A_KEY", "B_KEY"]


def test_a_deleted_secret_is_gone(plane: ControlPlaneFake, deployed: WorkerFolder) -> None:
    deployed.run("secret", "put", "KEY", stdin=VALUE)

    assert deployed.run("secret", "delete", "KEY").output == "Deleted secret KEY of hello\n"
    again = deployed.run("secret", "delete", "KEY")

    assert again.exit_code == 1
    assert "no secret KEY" in again.stderr
    assert plane.workers["hello"].secrets == {}


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ('{"A": "1", "OLD": null}', {"A": "1"}),
        ('A=1 # one\n\n# none\nexport B="two\\nlines"\nC=\'$x "y"\'\n', None),
    ],
    ids=["json", "dotenv"],
)
def test_many_come_at_once_from_a_file(
    plane: ControlPlaneFake, deployed: WorkerFolder, body: str, kept: dict[str, str] | None
) -> None:
    deployed.run("secret", "put", "OLD", stdin="x")
    file = deployed.write("secrets", body)

    result = deployed.run("secret", "bulk", str(file))

    assert result.exit_code == 0, result.output
    expected = kept or {"OLD": "x", "A": "1", "B": "two\nlines", "C": '$x "y"'}
    assert plane.workers["hello"].secrets == expected


def test_many_may_come_by_a_pipe_and_programs_are_told_which(
    plane: ControlPlaneFake, deployed: WorkerFolder
) -> None:
    told = deployed.run_json("secret", "bulk", stdin='{"A": "1", "B": null}')

    assert told == {"worker": "hello", "put": ["A"], "deleted": ["B"]}


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (["put", "bad-name"], VALUE, "'bad-name' cannot be read as env.NAME"),
        (["put", "KEY"], "", "standard input is empty"),
        (["bulk"], "A=1\nnonsense\n", "line 2 is not NAME=value"),
        (["bulk"], '{"A": 1}', "A must be a text, or null"),
        (["bulk"], f'{{"A": "{VALUE}"', "it is not JSON"),
        (["bulk"], "\n", "has no secrets"),
        (["bulk"], "".join(f"K{n}=1\n" for n in range(101)), "101 secrets; 100 at most"),
    ],
    ids=["name", "empty", "line", "number", "json", "none", "many"],
)
def test_what_is_refused_says_why_and_shows_no_value(
    deployed: WorkerFolder, arguments: list[str], stdin: str, problem: str
) -> None:
    refused = deployed.run("secret", *arguments, stdin=stdin)

    assert refused.exit_code in (1, 2)
    assert problem in refused.stderr
    assert VALUE not in refused.output


def test_a_value_is_no_argument(plane: ControlPlaneFake, deployed: WorkerFolder) -> None:
    assert deployed.run("secret", "put", "KEY", VALUE).exit_code == 2
    assert plane.workers["hello"].secrets == {}


@pytest.mark.parametrize("arguments", [["secret", "bulk"], ["deploy", "--secrets-file"]])
def test_a_file_that_is_not_text_shows_nothing_of_itself(
    deployed: WorkerFolder, arguments: list[str]
) -> None:
    (deployed.path / "secrets").write_bytes(b"KEY=" + VALUE.encode() + b"\xff")

    refused = deployed.run(*arguments, "secrets")

    assert refused.exit_code == 1
    assert refused.stderr == "Error: secrets is not UTF-8 text\n"
