"""`workerctl` and the control plane that it is made for: a worker's whole life, over real HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.worker_folder import WorkerFolder

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What signs in to a control plane in a process of its own."""
    command = [sys.executable, "-m", "support.control_plane", str(tmp_path_factory.mktemp("plane"))]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as process:
        try:
            assert process.stdout is not None
            bound = json.loads(process.stdout.readline())
            yield {
                "TENANTRY_BASE_URL": f"{bound['url']}/client/v4",
                "TENANTRY_ACCOUNT_ID": "acme",
                "TENANTRY_API_TOKEN": bound["token"],
            }
        finally:
            process.kill()


@pytest.fixture
def folder(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> WorkerFolder:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENANTRY_CONFIG_DIR", str(tmp_path / "config"))
    folder = WorkerFolder(tmp_path / "hello")
    monkeypatch.chdir(folder.path)
    return folder


@pytest.fixture
def deployed(folder: WorkerFolder) -> Iterator[WorkerFolder]:
    """A worker with two versions."""
    folder.configure(
        compatibility_date="2026-09-10",
        compatibility_flags=["python_workers"],
        vars={"GREETING": "hi", "N": 3},
        ai={"binding": "AI"},
        kv_namespaces=[{"binding": "CACHE"}],
        limits={"cpu_ms": 1000},
        observability={"enabled": True},
        triggers={"crons": ["*/5 * * * *"]},
    )
    for number in (1, 2):
        folder.run_json("deploy", "--message", f"number {number}", "--tag", f"v{number}")
    yield folder
    assert folder.run("delete", "--yes").exit_code == 0


def test_who_calls_is_told(folder: WorkerFolder) -> None:
    assert folder.run_json("whoami")["account"] == "acme"


def test_versions_and_what_they_have_come_back(deployed: WorkerFolder) -> None:
    newest, first = deployed.run_json("versions", "list")
    shown = deployed.run_json("versions", "view", newest["id"])

    assert [(each["number"], each["message"], each["tag"]) for each in (newest, first)] == [
        (2, "number 2", "v2"),
        (1, "number 1", "v1"),
    ]
    assert shown["compatibility_date"] == "2026-09-10"
    assert {(each["name"], each["type"]) for each in shown["bindings"]} == {
        ("GREETING", "plain_text"),
        ("N", "json"),
        ("AI", "ai"),
        ("CACHE", "kv_namespace"),
    }


def test_traffic_is_split_and_rolled_back(deployed: WorkerFolder) -> None:
    newest, first = (each["id"] for each in deployed.run_json("versions", "list"))

    deployed.run_json("versions", "deploy", f"{first}@25%", newest, "--message", "canary")
    split = deployed.run_json("deployments", "status")
    deployed.run_json("rollback", first, "--yes")

    assert split["message"] == "canary"
    assert {each["version_id"]: each["percentage"] for each in split["versions"]} == {
        first: 25,
        newest: 75,
    }
    assert deployed.run_json("deployments", "status")["versions"] == [
        {"version_id": first, "percentage": 100}
    ]


def test_secrets_are_kept_over_deploys(deployed: WorkerFolder) -> None:
    deployed.run_json("secret", "put", "A_KEY", stdin="one")
    deployed.run_json("secret", "bulk", stdin='{"B_KEY": "two", "C_KEY": "three"}')
    deployed.run_json("secret", "delete", "C_KEY")

    deployed.run_json("deploy")

    assert [each["name"] for each in deployed.run_json("secret", "list")] == ["A_KEY", "B_KEY"]


def test_a_secret_is_refused_while_the_newest_version_waits(deployed: WorkerFolder) -> None:
    deployed.run_json("versions", "upload")

    refused = deployed.run("secret", "put", "KEY", stdin="x")

    assert refused.exit_code == 1
    assert "versions deploy" in refused.stderr


def test_keys_and_values_come_back(deployed: WorkerFolder, tmp_path: Path) -> None:
    place = ["--binding", "CACHE"]
    names = ["a/b c", "k%2f", "ü"]
    for name in names:
        deployed.run_json("kv", "key", "put", name, f"of {name}", *place, "--metadata", '{"x": 1}')

    listed = deployed.run_json("kv", "key", "list", *place)
    values = [deployed.run_json("kv", "key", "get", name, *place)["value"] for name in names]
    pairs = deployed.write("pairs.json", json.dumps([{"key": "bulk", "value": "many"}]))
    deployed.run_json("kv", "bulk", "put", str(pairs), *place)
    asked = deployed.write("names.json", json.dumps(["bulk", "none"]))
    got = deployed.run("kv", "bulk", "get", str(asked), *place)
    deployed.run_json("kv", "key", "delete", "ü", *place)
    missing = deployed.run("kv", "key", "get", "ü", *place)

    assert sorted(each["name"] for each in listed) == sorted(names)
    assert all(each["metadata"] == {"x": 1} for each in listed)
    assert values == [f"of {name}" for name in names]
    assert json.loads(got.stdout) == {"bulk": "many", "none": None}
    assert missing.exit_code == 1
    (namespace,) = (
        each
        for each in deployed.run_json("kv", "namespace", "list")
        if each["title"] == "hello-cache"
    )
    gone = ["kv", "namespace", "delete", "--namespace-id", namespace["id"], "--yes"]
    assert deployed.run(*gone).exit_code == 0


def test_a_worker_that_fails_to_import_is_refused_by_file_and_line(folder: WorkerFolder) -> None:
    folder.write("src/util.py", "x = 1\nraise RuntimeError('no')\n")

    result = folder.run("deploy")

    assert result.exit_code == 1
    assert "util.py" in result.stderr
    assert "line 2" in result.stderr or "util.py:2" in result.stderr


def test_a_route_of_another_account_is_refused(folder: WorkerFolder) -> None:
    folder.configure(routes=["globex.example/*"])

    result = folder.run("deploy")

    assert result.exit_code == 1
    assert "globex.example" in result.stderr
    assert "is deployed all the same" in result.stderr
    folder.run("delete", "--yes")


def test_a_custom_domain_is_all_of_its_host(folder: WorkerFolder) -> None:
    folder.configure(routes=[{"pattern": "shop.acme.example", "custom_domain": True}])

    assert folder.run_json("deploy")["urls"] == ["shop.acme.example/*"]
    folder.run("delete", "--yes")
