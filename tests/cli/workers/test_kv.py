"""KV namespaces and their keys."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import PROGRAM
from support.fake_control_plane import ControlPlaneFake, Namespace
from support.worker_folder import WorkerFolder


@pytest.fixture
def namespace_id(folder: WorkerFolder) -> str:
    """Of a namespace that the folder's worker calls CACHE."""
    made: str = folder.run_json("kv", "namespace", "create", "cache")["id"]
    folder.configure(kv_namespaces=[{"binding": "CACHE", "id": made}])
    return made


def test_a_new_namespace_is_shown_as_a_configuration_has_it(folder: WorkerFolder) -> None:
    lines = folder.run("kv", "namespace", "create", "my-cache").stdout.splitlines()

    entry = json.loads("\n".join(lines[2:]))
    assert lines[0] == "Made the namespace my-cache"
    assert entry == {"kv_namespaces": [{"binding": "my_cache", "id": "0" * 32}]}


def test_all_pages_of_namespaces_are_listed(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    for number in range(205):
        plane.namespaces[f"id{number}"] = Namespace(f"title {number}")

    listed = json.loads(folder.run("kv", "namespace", "list").stdout)

    assert [each["title"] for each in listed] == [f"title {number}" for number in range(205)]
    assert len([call for call in plane.calls if call.method == "GET"]) == 3


def test_a_namespace_is_renamed_and_deleted(
    plane: ControlPlaneFake, folder: WorkerFolder, namespace_id: str
) -> None:
    folder.run("kv", "namespace", "rename", "cache", "--new-name", "store")
    assert plane.namespaces[namespace_id].title == "store"

    assert folder.run("kv", "namespace", "delete", "store").exit_code == 2
    assert folder.run("kv", "namespace", "delete", "--binding", "CACHE", "-y").exit_code == 0
    assert plane.namespaces == {}


def test_a_value_comes_back_byte_for_byte(
    plane: ControlPlaneFake, folder: WorkerFolder, namespace_id: str, tmp_path: Path
) -> None:
    whole = bytes(range(256)) + b"\r\n"
    file = tmp_path / "value.bin"
    file.write_bytes(whole)

    put = folder.run("kv", "key", "put", "a/b c", "--path", str(file), "--binding", "CACHE")
    got = subprocess.run(
        [sys.executable, "-c", PROGRAM, "kv", "key", "get", "a/b c", "--binding", "CACHE"],
        stdout=subprocess.PIPE,
        check=True,
    )

    assert put.exit_code == 0, put.output
    assert plane.namespaces[namespace_id].values == {"a/b c": whole}
    assert got.stdout == whole


def test_a_value_may_have_metadata_and_an_end(
    plane: ControlPlaneFake, folder: WorkerFolder, namespace_id: str
) -> None:
    options = ["--ttl", "120", "--metadata", '{"a": [1]}', "--namespace-id", namespace_id]

    assert folder.run("kv", "key", "put", "k", "v", *options).exit_code == 0

    namespace = plane.namespaces[namespace_id]
    assert namespace.values == {"k": b"v"}
    assert namespace.details["k"] == {"expiration_ttl": 120, "metadata": {"a": [1]}}


def test_a_value_may_be_piped(
    plane: ControlPlaneFake, folder: WorkerFolder, namespace_id: str
) -> None:
    folder.run("kv", "key", "put", "k", "--binding", "CACHE", stdin="line\n")

    assert plane.namespaces[namespace_id].values == {"k": b"line\n"}
    assert folder.run_json("kv", "key", "get", "k", "--binding", "CACHE") == {
        "namespace_id": namespace_id,
        "key": "k",
        "value": "line\n",
        "base64": False,
    }


def test_all_pages_of_keys_are_listed(folder: WorkerFolder, namespace_id: str) -> None:
    for name in ("a1", "b1", "a2", "a3", "a4", "a5"):
        folder.run("kv", "key", "put", name, "x", "--binding", "CACHE")

    listed = folder.run("kv", "key", "list", "--prefix", "a", "--binding", "CACHE")

    assert [each["name"] for each in json.loads(listed.stdout)] == ["a1", "a2", "a3", "a4", "a5"]


def test_a_key_that_is_not_there_is_named(folder: WorkerFolder, namespace_id: str) -> None:
    result = folder.run("kv", "key", "get", "none", "--binding", "CACHE")

    assert result.exit_code == 1
    assert result.stderr == f"Error: there is no key 'none' in {namespace_id}\n"


def test_many_keys_are_put_got_and_deleted(
    plane: ControlPlaneFake, folder: WorkerFolder, namespace_id: str
) -> None:
    pairs = [{"key": f"k{number:04}", "value": str(number)} for number in range(1200)]
    file = str(folder.write("pairs.json", json.dumps(pairs)))
    names = str(folder.write("names.json", json.dumps(["k0001", {"name": "k1199"}, "none"])))

    assert folder.run_json("kv", "bulk", "put", file, "--binding", "CACHE")["written"] == 1200
    got = folder.run("kv", "bulk", "get", names, "--binding", "CACHE")
    assert json.loads(got.stdout) == {"k0001": "1", "k1199": "1199", "none": None}
    assert folder.run("kv", "bulk", "delete", names, "--binding", "CACHE").exit_code == 0
    assert len(plane.namespaces[namespace_id].values) == 1198


def test_a_namespace_that_a_deploy_made_is_found_by_its_binding(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(kv_namespaces=[{"binding": "CACHE"}])
    folder.run("deploy")

    folder.run("kv", "key", "put", "k", "v", "--binding", "CACHE")

    (namespace,) = plane.namespaces.values()
    assert namespace.values == {"k": b"v"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["key", "list"], "which namespace?"),
        (["key", "list", "--binding", "OTHER"], "no KV binding 'OTHER'; it has: CACHE"),
        (["key", "put", "k", "v", "--metadata", "{", "--binding", "CACHE"], "it is not JSON"),
        (["key", "put", "k", "v", "--path", "wrangler.jsonc", "--binding", "CACHE"], "either"),
        (["bulk", "put", "wrangler.jsonc", "--binding", "CACHE"], "Expected `array`"),
        (["namespace", "rename", "--new-name", "x"], "either OLD or --namespace-id"),
    ],
)
def test_what_is_wrong_on_a_command_line_ends_with_two(
    folder: WorkerFolder, namespace_id: str, arguments: list[str], problem: str
) -> None:
    result = folder.run("kv", *arguments)

    assert result.exit_code == 2
    assert problem in result.stderr
