"""`workerctl deploy`: what goes to the control plane, in which order, and what the user sees of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import PROGRAM
from support.fake_control_plane import ControlPlaneFake, Namespace, Problem
from support.worker_folder import ENTRY, WorkerFolder

RUNTIME_ONLY = ["torch", "grpc", "granian", "starlette", "sqlalchemy", "cryptography", "jinja2"]


def test_a_new_worker_is_made_by_its_upload(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    plane.namespaces["kv1"] = Namespace("cache")
    folder.configure(
        compatibility_date="2026-09-10",
        compatibility_flags=["python_workers"],
        vars={"GREETING": "hi", "N": 3},
        ai={"binding": "AI"},
        kv_namespaces=[{"binding": "KV", "id": "kv1"}],
        limits={"cpu_ms": 1000},
    )

    result = folder.run("deploy")

    assert result.exit_code == 0, result.output
    (upload,) = plane.uploads()
    assert (upload.method, upload.path) == ("PUT", "/workers/scripts/hello")
    assert upload.files == {"entry.py": ENTRY.encode()}
    assert upload.parts["entry.py"].content_type == "text/x-python"
    # what wrangler sends for this configuration
    assert upload.metadata == {
        "main_module": "entry.py",
        "bindings": [
            {"name": "KV", "type": "kv_namespace", "namespace_id": "kv1"},
            {"name": "AI", "type": "ai"},
            {"name": "GREETING", "type": "plain_text", "text": "hi"},
            {"name": "N", "type": "json", "json": 3},
        ],
        "compatibility_date": "2026-09-10",
        "compatibility_flags": ["python_workers"],
        "keep_bindings": ["secret_text", "secret_key"],
        "limits": {"cpu_ms": 1000},
    }
    assert plane.workers["hello"].has_url


def test_a_worker_that_is_there_gets_a_version_and_all_traffic_goes_to_it(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.run("deploy")
    result = folder.run("deploy", "--message", "second", "--tag", "v2")

    worker = plane.workers["hello"]
    newest, _ = worker.versions
    upload = plane.uploads()[-1]
    assert (upload.method, upload.path) == ("POST", "/workers/scripts/hello/versions")
    assert upload.query == {"bindings_inherit": "strict"}
    assert newest["annotations"] == {"workers/message": "second", "workers/tag": "v2"}
    assert worker.live == [(newest["id"], 100)]
    assert worker.deployments[0]["annotations"] == {"workers/message": "second"}
    assert f"Current Version ID: {newest['id']}" in result.stdout


def test_the_user_sees_what_wrangler_shows(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    folder.configure(vars={"GREETING": "hi"}, triggers={"crons": ["*/5 * * * *"]})
    folder.write("src/util.py", "x = 1\n")

    lines = folder.run("deploy").stdout.splitlines()

    version = plane.workers["hello"].versions[0]["id"]
    assert "│ util.py          │ python │ 0.01 KiB │" in lines
    assert "│ Total (1 module) │        │ 0.01 KiB │" in lines
    assert any(line.startswith("Total Upload: 0.15 KiB / gzip: 0.1") for line in lines)
    assert "Worker Startup Time: 12 ms" in lines
    assert 'env.GREETING ("hi")  Environment Variable' in lines
    assert f"  http://hello.acme.localhost:{plane.port}/" in lines
    assert "  schedule: */5 * * * *" in lines
    assert lines[-1] == f"Current Version ID: {version}"
    assert plane.workers["hello"].crons == ["*/5 * * * *"]


def test_the_same_is_told_to_programs(plane: ControlPlaneFake, folder: WorkerFolder) -> None:
    folder.configure(vars={"API": "not to be printed"})

    told = folder.run_json("deploy")

    assert told == {
        "worker": "hello",
        "main_module": "entry.py",
        "modules": [{"name": "entry.py", "type": "python", "bytes": len(ENTRY)}],
        "upload_bytes": len(ENTRY),
        "gzip_bytes": told["gzip_bytes"],
        "dependencies": [],
        "bindings": [{"name": "API", "type": "plain_text"}],
        "version_id": plane.workers["hello"].versions[0]["id"],
        "startup_ms": 12,
        "urls": [f"http://hello.acme.localhost:{plane.port}/"],
        "crons": [],
        "dry_run": False,
    }


def test_a_dry_run_asks_nobody(
    plane: ControlPlaneFake, folder: WorkerFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TENANTRY_API_TOKEN")

    result = folder.run("deploy", "--dry-run", "--outdir", str(tmp_path / "out"))

    assert result.exit_code == 0
    assert result.stdout.endswith("--dry-run: exiting now.\n")
    assert plane.calls == []
    assert (tmp_path / "out" / "entry.py").read_text() == ENTRY


def test_variables_of_the_command_line_beat_those_of_the_file(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(vars={"A": "file", "B": "file"})

    folder.run("deploy", "--var", "A:with:colon", "--keep-vars")

    metadata = plane.uploads()[0].metadata
    assert {each["name"]: each["text"] for each in metadata["bindings"]} == {
        "A": "with:colon",
        "B": "file",
    }
    assert metadata["keep_bindings"] == ["secret_text", "secret_key", "plain_text", "json"]


def test_dependencies_go_along_for_the_server_to_resolve(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.write(
        "pyproject.toml",
        '[project]\nname = "hello"\nrequires-python = ">=3.12"\ndependencies = ["jinja2>=3"]\n',
    )

    result = folder.run("deploy")

    assert plane.uploads()[0].metadata["tenantry"] == {
        "dependencies": ["jinja2>=3"],
        "requires_python": ">=3.12",
    }
    assert "Dependencies: jinja2>=3" in result.stdout


def test_secrets_of_a_file_are_deployed_along_and_never_shown(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(secrets={"required": ["API_KEY"]})
    secrets = folder.write("prod.env", 'API_KEY="correct horse"\n')

    result = folder.run("deploy", "--secrets-file", str(secrets))

    assert result.exit_code == 0, result.output
    assert plane.workers["hello"].secrets == {"API_KEY": "correct horse"}
    assert "correct horse" not in result.output
    assert "env.API_KEY  Secret" in result.stdout


def test_a_secret_that_is_required_and_not_there_stops_the_deploy(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.run("deploy")
    folder.configure(secrets={"required": ["API_KEY", "OTHER"]})
    folder.run("secret", "put", "OTHER", stdin="x")

    result = folder.run("deploy")

    assert result.exit_code == 1
    assert "does not have: API_KEY; run `workerctl secret put NAME`" in result.stderr
    assert len(plane.uploads()) == 1


def test_a_namespace_without_an_id_is_made_once(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(kv_namespaces=[{"binding": "MY_CACHE"}])

    folder.run("deploy")
    folder.run("deploy")

    (namespace_id,) = plane.namespaces
    assert plane.namespaces[namespace_id].title == "hello-my-cache"
    bound = [upload.metadata["bindings"] for upload in plane.uploads()]
    assert bound == 2 * [
        [{"name": "MY_CACHE", "type": "kv_namespace", "namespace_id": namespace_id}]
    ]


def test_routes_of_its_own_turn_the_common_address_off(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(
        routes=["acme.example/*", {"pattern": "b.example/x", "zone_name": "b.example"}]
    )

    told = folder.run_json("deploy")

    assert told["urls"] == ["acme.example/*", "b.example/x"]
    assert not plane.workers["hello"].has_url
    assert [route["pattern"] for route in plane.workers["hello"].routes] == told["urls"]


def test_triggers_that_the_file_does_not_name_stay(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(triggers={"crons": ["0 * * * *"]})
    folder.run("deploy")
    folder.configure()
    folder.run("deploy")
    assert plane.workers["hello"].crons == ["0 * * * *"]

    folder.configure(triggers={"crons": []})
    folder.run("deploy")
    assert plane.workers["hello"].crons == []


def test_an_upload_that_is_refused_says_file_and_line(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    problem = "entry.py:7: NameError: name 'requets' is not defined"
    plane.refusals["PUT", "/workers/scripts/hello"] = Problem(400, 10021, problem)

    result = folder.run("deploy")

    assert result.exit_code == 1
    assert result.stderr == f"Error: the upload was refused:\n{problem} [code: 10021]\n"


def test_an_id_of_another_server_means_one_namespace_to_all_workers_that_have_it(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    foreign = "0f2ac74b498b48028cb68387c421e279"
    folder.configure(
        kv_namespaces=[{"binding": "A", "id": foreign}, {"binding": "B", "id": foreign}]
    )

    first = folder.run("deploy")
    second = folder.run("deploy", "--name", "other")

    (namespace_id,) = plane.namespaces
    bound = {
        each["namespace_id"] for upload in plane.uploads() for each in upload.metadata["bindings"]
    }
    assert bound == {namespace_id}
    assert plane.namespaces[namespace_id].title == foreign
    assert f"there was no KV namespace '{foreign}' here" in first.stderr
    assert second.stderr == ""


def test_an_account_of_the_file_that_is_not_the_tokens_is_named(folder: WorkerFolder) -> None:
    folder.configure(account_id="0123abcd")

    stderr = folder.run("deploy").stderr

    assert "account_id is '0123abcd'; you are signed in as 'acme', which is used" in stderr


def test_a_worker_needs_no_configuration_but_a_name(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    (folder.path / "wrangler.jsonc").unlink()

    refused = folder.run("deploy", "src/entry.py")
    assert refused.exit_code == 2
    assert "--name" in refused.stderr

    assert folder.run("deploy", "src/entry.py", "--name", "other").exit_code == 0
    assert plane.uploads()[0].files == {"entry.py": ENTRY.encode()}
    assert list(plane.workers) == ["other"]


@pytest.mark.parametrize("code", [401, 403])
def test_a_token_that_is_not_good_is_said_with_what_to_do(
    plane: ControlPlaneFake, folder: WorkerFolder, code: int
) -> None:
    refusal = Problem(code, 10000, "Authentication error")
    plane.refusals["GET", "/workers/services/hello"] = refusal

    result = folder.run("deploy")

    assert result.exit_code == 1
    assert "Authentication error [code: 10000]" in result.stderr
    assert "`workerctl whoami`" in result.stderr


def test_a_server_that_is_not_there_is_named(folder: WorkerFolder) -> None:
    nowhere = {"TENANTRY_BASE_URL": "http://127.0.0.1:9/client/v4"}

    result = folder.run("deploy", env=nowhere)

    assert result.exit_code == 1
    assert "cannot reach http://127.0.0.1:9/client/v4" in result.stderr
    assert "workerctl dev" in result.stderr


def test_json_stays_json_where_something_is_warned_of(folder: WorkerFolder) -> None:
    folder.configure(vrs={})

    result = folder.run("deploy", "--json")

    assert json.loads(result.stdout)["worker"] == "hello"
    assert "vrs is not a key that is known; is it 'vars'?" in result.stderr


def test_what_the_server_says_of_an_upload_is_a_warning(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    plane.messages = ["python_modules/workers is left out: the runtime has its own"]

    assert folder.run("deploy").stderr == f"Warning: {plane.messages[0]}\n"


def test_a_trigger_that_is_refused_leaves_the_version_deployed_and_says_so(
    plane: ControlPlaneFake, folder: WorkerFolder
) -> None:
    folder.configure(triggers={"crons": ["often"]})
    refusal = Problem(400, 10001, "cron: 'often' is none")
    plane.refusals["PUT", "/workers/scripts/hello/schedules"] = refusal

    result = folder.run("deploy")

    version_id = plane.workers["hello"].versions[0]["id"]
    assert result.exit_code == 1
    assert "'often' is none [code: 10001]" in result.stderr
    assert f"Version {version_id} of hello is deployed all the same" in result.stderr


def test_a_base_install_is_enough(folder: WorkerFolder) -> None:
    # None: importing it fails, as where it is not installed
    hide = "import sys; sys.modules.update(dict.fromkeys(" + repr(RUNTIME_ONLY) + "));"

    for arguments in (["deploy"], ["secret", "list"], ["kv", "namespace", "list"], ["whoami"]):
        command = [sys.executable, "-c", f"{hide} {PROGRAM}", *arguments]
        result = subprocess.run(command, capture_output=True, check=False)
        assert (result.returncode, result.stderr) == (0, b"")
