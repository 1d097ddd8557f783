"""The real wrangler deploys, changes and deletes Python workers here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import control_plane
from support.control_plane import HELLO, RAISES
from support.wrangler import Wrangler, write_project

pytestmark = pytest.mark.conformance

TESTS = Path(control_plane.__file__).parents[1]

UTIL = "def greeting():\n    return 'hi'\n"
FILES = {"src/entry.py": f"import util\n{HELLO}", "src/util.py": UTIL}

MakeProject = Callable[..., Wrangler]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("control")
    with subprocess.Popen(
        [sys.executable, control_plane.__file__, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(TESTS)},
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.fixture
def project(plane: dict[str, str], tmp_path: Path) -> MakeProject:
    # one wrangler's caches are no business of another's
    names = {"folder": tmp_path / "project", "home": tmp_path / "home"}
    for folder in names.values():
        folder.mkdir()

    def make(files: dict[str, str] = FILES, **configuration: Any) -> Wrangler:
        write_project(tmp_path / "project", files, **configuration)
        return Wrangler(url=plane["url"], account="acme", token=plane["token"], **names)

    return make


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """One worker for each test."""
    return str(request.node.name).replace("_", "-")[5:60].strip("-")


def version_ids(wrangler: Wrangler) -> list[str]:
    return [each["id"] for each in wrangler("versions", "list", "--json").json]


def in_force(wrangler: Wrangler) -> dict[str, float]:
    shown = wrangler("deployments", "status", "--json").json
    return {each["version_id"]: each["percentage"] for each in shown["versions"]}


def secrets(wrangler: Wrangler) -> list[str]:
    return [each["name"] for each in wrangler("secret", "list").json]


def test_who_it_is(project: MakeProject) -> None:
    told = project()("whoami").output

    assert "acme@localhost" in told


def test_a_new_worker_and_then_the_next_version(project: MakeProject, name: str) -> None:
    wrangler = project(
        name=name,
        vars={"GREETING": "hi", "N": {"a": 3}},
        ai={"binding": "AI"},
        limits={"cpu_ms": 1000},
        triggers={"crons": ["*/5 * * * *"]},
        observability={"enabled": True},
    )

    first = wrangler("deploy").output
    second = wrangler("deploy", "--message", "again").output

    for shown in (first, second):
        assert "Worker Startup Time: 12 ms" in shown
        assert 'env.GREETING ("hi")' in shown
        assert f"https://{name}.acme.workers.dev" in shown
        assert "schedule: */5 * * * *" in shown
    assert len(version_ids(wrangler)) == 2
    assert version_ids(wrangler)[-1] in second


def test_versions_that_share_the_requests(project: MakeProject, name: str) -> None:
    wrangler = project(name=name)
    wrangler("deploy")
    wrangler("versions", "upload", "--tag", "v2", "--message", "the second")
    old, new = version_ids(wrangler)

    wrangler("versions", "deploy", f"{new}@20", f"{old}@80", "-y")

    assert in_force(wrangler) == {new: 20, old: 80}
    shown = wrangler("versions", "view", new).output
    assert "v2" in shown and "the second" in shown
    assert "(20%)" in wrangler("deployments", "list").output


def test_a_rollback_to_the_version_before(project: MakeProject, name: str) -> None:
    wrangler = project(name=name)
    wrangler("deploy")
    wrangler("deploy")
    old, new = version_ids(wrangler)
    assert in_force(wrangler) == {new: 100}

    wrangler("rollback", "-y", "--message", "back")

    assert in_force(wrangler) == {old: 100}
    assert "Rollback" in wrangler("deployments", "status").output


def test_secrets_one_by_one_and_in_bulk(project: MakeProject, name: str, tmp_path: Path) -> None:
    wrangler = project(name=name)
    wrangler("deploy")
    bulk = tmp_path / "secrets.json"
    bulk.write_text('{"A": "1", "B": "2"}')

    wrangler("secret", "put", "KEY", stdin="hush")
    wrangler("secret", "bulk", str(bulk))
    assert secrets(wrangler) == ["A", "B", "KEY"]
    wrangler("secret", "delete", "A")
    wrangler("deploy")

    assert secrets(wrangler) == ["B", "KEY"]


def test_secrets_of_a_version_that_waits(project: MakeProject, name: str) -> None:
    wrangler = project(name=name, vars={"V": "1"})
    wrangler("deploy")

    wrangler("versions", "secret", "put", "KEY", stdin="hush")
    refused = wrangler.run("secret", "put", "OTHER", stdin="x")

    assert refused.status != 0 and "isn't currently deployed" in refused.output
    shown = wrangler("versions", "view", version_ids(wrangler)[-1]).output
    assert "KEY" in shown and 'env.V ("1")' in shown


def test_a_secret_of_a_worker_that_is_not_deployed(project: MakeProject, name: str) -> None:
    refused = project(name=name).run("secret", "put", "KEY", stdin="hush")

    assert refused.status != 0
    assert "Deploy it first" in refused.output


def test_a_project_as_pywrangler_lays_it_out(project: MakeProject, name: str) -> None:
    wrangler = project(
        {
            "pyproject.toml": '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.11"\n'
            'dependencies = ["greet"]\n\n[dependency-groups]\ndev = ["workers-py"]\n',
            "src/entry.py": f"from greet import hi\n{HELLO}",
            "python_modules/greet/__init__.py": "def hi():\n    return 'hi'\n",
            "python_modules/greet/table.json": "{}",
            "python_modules/workers/__init__.py": "import js\n",
        },
        name=name,
        ai={"binding": "AI"},
    )

    assert "Current Version ID" in wrangler("deploy").output


def test_routes_and_custom_domains(project: MakeProject, name: str) -> None:
    routes = ["shop.acme.example/*", {"pattern": "www.acme.example", "custom_domain": True}]
    wrangler = project(name=name, routes=routes)

    shown = wrangler("deploy").output

    assert "shop.acme.example/*" in shown and "www.acme.example (custom domain)" in shown
    assert "Deployed" in wrangler("triggers", "deploy").output


def test_a_worker_that_another_one_calls(project: MakeProject, name: str) -> None:
    project(name=f"{name}-a")("deploy")
    caller = project(name=name, services=[{"binding": "S", "service": f"{name}-a"}])

    assert "env.S" in caller("deploy").output
    asked = caller.run("delete", "--name", f"{name}-a").output
    assert f"Worker {name} (production) uses this Worker as a Service Binding" in asked


def test_a_namespace_its_keys_and_its_values(
    project: MakeProject, name: str, tmp_path: Path
) -> None:
    wrangler = project(name=name)
    bulk = tmp_path / "bulk.json"
    bulk.write_text('[{"key": "b", "value": "2"}, {"key": "c", "value": "3"}]')

    wrangler("kv", "namespace", "create", "NOTES")
    (namespace,) = wrangler("kv", "namespace", "list").json
    at = ["--namespace-id", namespace["id"], "--remote"]
    wrangler("kv", "key", "put", "a/b c", "value", "--metadata", '{"x":1}', *at)
    wrangler("kv", "bulk", "put", str(bulk), *at)

    assert "value" in wrangler("kv", "key", "get", "a/b c", "--text", *at).output
    listed = wrangler("kv", "key", "list", *at).json
    assert listed == [{"name": "a/b c", "metadata": {"x": 1}}, {"name": "b"}, {"name": "c"}]
    wrangler("kv", "key", "delete", "b", *at)
    assert len(wrangler("kv", "key", "list", *at).json) == 2
    bound = project(name=name, kv_namespaces=[{"binding": "KV", "id": namespace["id"]}])
    assert "env.KV" in bound("deploy").output
    wrangler("kv", "namespace", "delete", "--namespace-id", namespace["id"], "-y")
    assert wrangler("kv", "namespace", "list").json == []


REFUSED: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "a syntax error": ({"src/util.py": "x = 1\ndef f(:\n"}, {}, "util.py:2: SyntaxError"),
    "an error at start-up": ({"src/util.py": f"\n{RAISES}('no')\n"}, {}, "util.py:2: RuntimeError"),
    "Pyodide": ({"src/util.py": "from pyodide.ffi import to_js\n"}, {}, "util.py:1: imports"),
    "D1": ({}, {"d1_databases": [{"binding": "DB", "database_id": "x"}]}, "D1 is not available"),
    "R2": ({}, {"r2_buckets": [{"binding": "B", "bucket_name": "bucket"}]}, "R2"),
    "another's domain": ({}, {"routes": ["example.com/*"]}, "example.com"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_name(project: MakeProject, name: str, case: str) -> None:
    files, configuration, named = REFUSED[case]
    wrangler = project({**FILES, **files}, name="refused", **configuration)

    refused = wrangler.run("deploy")

    assert refused.status != 0
    assert named in refused.output


def test_a_worker_is_gone_when_it_is_deleted(project: MakeProject, name: str) -> None:
    wrangler = project(name=name)
    wrangler("deploy")

    assert f"Successfully deleted {name}" in wrangler("delete").output
    assert wrangler.run("versions", "list").status != 0
