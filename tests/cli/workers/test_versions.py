"""Versions, deployments and rollbacks of a worker."""

from __future__ import annotations

import pytest

from support.fake_control_plane import ControlPlaneFake
from support.worker_folder import WorkerFolder


@pytest.fixture
def ids(plane: ControlPlaneFake, folder: WorkerFolder) -> list[str]:
    """Of three versions, which were deployed one after the other, the oldest first."""
    for number in (1, 2, 3):
        folder.run("deploy", "--message", f"number {number}", "--tag", f"v{number}")
    return [version["id"] for version in reversed(plane.workers["hello"].versions)]


def test_an_uploaded_version_gets_no_traffic(
    plane: ControlPlaneFake, folder: WorkerFolder, ids: list[str]
) -> None:
    told = folder.run_json("versions", "upload", "--message", "next")

    worker = plane.workers["hello"]
    assert told["version_id"] == worker.versions[0]["id"]
    assert worker.versions[0]["annotations"] == {"workers/message": "next"}
    assert worker.live == [(ids[2], 100)]


def test_how_to_deploy_an_uploaded_version_is_said(folder: WorkerFolder, ids: list[str]) -> None:
    lines = folder.run("versions", "upload").stdout.splitlines()

    (version_line,) = [line for line in lines if line.startswith("Worker Version ID: ")]
    version_id = version_line.removeprefix("Worker Version ID: ")
    assert lines[-1].strip() == f"workerctl versions deploy {version_id}@100%"


def test_a_first_version_cannot_be_without_traffic(folder: WorkerFolder) -> None:
    result = folder.run("versions", "upload")

    assert result.exit_code == 1
    assert "its first version comes with `workerctl deploy`" in result.stderr


def test_versions_are_listed_the_newest_last(folder: WorkerFolder, ids: list[str]) -> None:
    lines = folder.run("versions", "list").stdout.splitlines()
    told = folder.run_json("versions", "list")

    shown = [line.split()[-1] for line in lines if line.startswith("Version ID:")]
    assert shown == ids
    assert "Message:     number 3" in lines
    # programs get the newest first, as from the control plane
    assert [version["id"] for version in told] == ids[::-1]
    assert told[0] == {
        "id": ids[2],
        "number": 3,
        "created": "2026-01-03T12:00:00Z",
        "author": "ada@example.com",
        "source": "workerctl",
        "tag": "v3",
        "message": "number 3",
    }


def test_a_version_is_shown_with_its_bindings(folder: WorkerFolder) -> None:
    folder.configure(compatibility_date="2026-05-05", vars={"A": "x"}, ai={"binding": "AI"})
    version_id = folder.run_json("deploy")["version_id"]

    lines = folder.run("versions", "view", version_id).stdout.splitlines()
    told = folder.run_json("versions", "view", version_id)

    assert "Handlers:            fetch" in lines
    assert "Compatibility Date:  2026-05-05" in lines
    assert 'env.A ("x")  Environment Variable' in lines
    assert told["bindings"] == [
        {"name": "AI", "type": "ai"},
        {"name": "A", "type": "plain_text"},
    ]


@pytest.mark.parametrize(
    ("arguments", "split"),
    [
        (["{0}@10%", "{1}@90"], {0: 10, 1: 90}),
        (["{0}@20%", "{1}", "{2}"], {0: 20, 1: 40, 2: 40}),
        (["{0}"], {0: 100}),
        (["--version-id", "{0}", "--percentage", "30", "{1}"], {0: 30, 1: 70}),
    ],
    ids=["both", "the-rest", "one", "options"],
)
def test_traffic_is_split_as_it_is_said(
    plane: ControlPlaneFake,
    folder: WorkerFolder,
    ids: list[str],
    arguments: list[str],
    split: dict[int, float],
) -> None:
    given = [argument.format(*ids) for argument in arguments]

    result = folder.run("versions", "deploy", *given, "-m", "canary", "-y")

    assert result.exit_code == 0, result.output
    worker = plane.workers["hello"]
    assert dict(worker.live) == {ids[index]: share for index, share in split.items()}
    assert worker.deployments[0]["annotations"] == {"workers/message": "canary"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "which versions?"),
        (["a@10%", "b@20%"], "the percentages are 30 in all; they must be 100"),
        (["a@100%", "b"], "nothing is left for b"),
        (["a@10%", "a"], "a version comes twice"),
        (["a@ten"], "a@ten: it must be VERSION@PERCENT"),
        (["--percentage", "10"], "each --percentage is of a --version-id"),
    ],
)
def test_a_split_that_is_wrong_is_refused_before_anything_is_asked(
    plane: ControlPlaneFake, folder: WorkerFolder, arguments: list[str], problem: str
) -> None:
    result = folder.run("versions", "deploy", *arguments)

    assert result.exit_code == 2
    assert problem in result.stderr
    assert plane.calls == []


def test_a_rollback_goes_to_the_version_before(
    plane: ControlPlaneFake, folder: WorkerFolder, ids: list[str]
) -> None:
    result = folder.run("rollback", "--message", "it broke", "--yes")

    worker = plane.workers["hello"]
    assert worker.live == [(ids[1], 100)]
    assert worker.deployments[0]["annotations"] == {
        "workers/message": "it broke",
        "workers/triggered_by": "rollback",
    }
    assert result.stdout.splitlines()[-1] == f"Current Version ID: {ids[1]}"


def test_a_rollback_passes_over_a_split_and_goes_where_it_is_told(
    plane: ControlPlaneFake, folder: WorkerFolder, ids: list[str]
) -> None:
    folder.run("versions", "deploy", f"{ids[1]}@50", f"{ids[2]}@50")

    assert folder.run_json("rollback", "-y")["version_id"] == ids[2]
    assert folder.run_json("rollback", ids[0], "-y")["version_id"] == ids[0]
    assert plane.workers["hello"].live == [(ids[0], 100)]


def test_there_may_be_nothing_to_roll_back_to(folder: WorkerFolder) -> None:
    folder.run("deploy")

    result = folder.run("rollback", "-y")

    assert result.exit_code == 1
    assert "has no version before the present one" in result.stderr


def test_deployments_show_who_gets_what(
    plane: ControlPlaneFake, folder: WorkerFolder, ids: list[str]
) -> None:
    folder.run("versions", "deploy", f"{ids[1]}@10%", f"{ids[2]}@90%", "-m", "canary")

    status = folder.run("deployments", "status").stdout.splitlines()
    told = folder.run_json("deployments", "status")
    listed = folder.run_json("deployments", "list")

    assert "Message:     canary" in status
    assert f"Version(s):  (10%) {ids[1]}" in status
    assert f"             (90%) {ids[2]}" in status
    assert told["versions"] == [
        {"version_id": ids[1], "percentage": 10.0},
        {"version_id": ids[2], "percentage": 90.0},
    ]
    assert [each["id"] for each in listed] == [
        each["id"] for each in plane.workers["hello"].deployments
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["versions", "list"],
        ["deployments", "list"],
        ["rollback", "-y"],
        ["secret", "list"],
        ["tail"],
        ["logs"],
        ["delete", "-y"],
    ],
    ids=" ".join,
)
def test_a_worker_that_is_not_there_is_said_in_plain_words(
    folder: WorkerFolder, arguments: list[str]
) -> None:
    result = folder.run(*arguments)

    assert result.exit_code == 1
    assert "there is no worker 'hello' in this account" in result.stderr


def test_a_worker_is_deleted_when_that_was_said(
    plane: ControlPlaneFake, folder: WorkerFolder, ids: list[str]
) -> None:
    asked = folder.run("delete")
    assert asked.exit_code == 2
    assert "say --yes" in asked.stderr
    assert "hello" in plane.workers

    assert folder.run("delete", "--yes").stdout == "Successfully deleted hello\n"
    assert plane.workers == {}
