"""The names under which Cloudflare's projects import, and those that they cannot have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tenantry.workers
from support.worker_code import a_worker

CHECK = """
from tenantry.workers._aliases import install_aliases
install_aliases()
"""


def run_python(code: str, *, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHECK + code],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_each_name_is_this_module_and_no_second_one(tmp_path: Path) -> None:
    code = """
import asgi, wsgi, workers, workers.asgi
from workers import testing, wsgi as same
import tenantry.workers.asgi, tenantry.workers.wsgi
assert workers is tenantry.workers
assert workers.asgi is asgi is tenantry.workers.asgi
assert same is wsgi is tenantry.workers.wsgi
assert workers.__spec__.name == workers.__name__ == "tenantry.workers"
assert asgi.__spec__.name == "tenantry.workers.asgi"
from workers import *
print(Response is tenantry.workers.Response, waitUntil is wait_until)
"""
    assert run_python(code, folder=tmp_path) == "True True"


def test_a_project_may_have_an_asgi_module_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "asgi.py").write_text("NAME = 'mine'")
    assert run_python("import asgi\nprint(asgi.NAME)", folder=tmp_path) == "mine"


def test_cloudflares_sdk_among_the_packages_is_passed_over(tmp_path: Path) -> None:
    packages = tmp_path / "python_modules"
    (packages / "workers").mkdir(parents=True)
    (packages / "workers" / "__init__.py").write_text("import js")
    (packages / "asgi.py").write_text("import js")
    code = f"import sys\nsys.path.insert(0, {str(packages)!r})\nimport asgi, workers\nprint(asgi.__name__)"
    assert run_python(code, folder=tmp_path) == "tenantry.workers.asgi"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from js import Object", "no module 'js'.*Request, Response"),
        ("import js", "no module 'js'"),
        ("from pyodide.ffi import to_js", "no module 'pyodide'.*to_js"),
        ("import micropip", "pyproject.toml"),
        ("from workers.workflows import NonRetryableError", "no workflows"),
        ("from workers import DurableObject", "'DurableObject'.*no Durable Objects"),
        ("from workers import WorkflowEntrypoint", "'WorkflowEntrypoint'"),
        ("from workers import Response, Nothing", "cannot import name 'Nothing'"),
    ],
)
async def test_what_is_not_here_says_what_to_write(
    tmp_path: Path, statement: str, message: str
) -> None:
    with pytest.raises(ImportError, match=message):
        async with a_worker(tmp_path, statement):
            pass


def test_a_library_that_asks_where_it_runs_gets_an_answer(tmp_path: Path) -> None:
    code = """
from importlib.util import find_spec
print(find_spec("js"), find_spec("pyodide"))
try:
    import js
except ImportError as error:
    print(type(error).__name__, error.name)
"""
    assert run_python(code, folder=tmp_path) == "None None\nModuleNotFoundError js"


def test_javascripts_modules_are_this_one_or_none() -> None:
    module = tenantry.workers.import_from_javascript("cloudflare:workers")
    assert module is tenantry.workers
    with pytest.raises(ImportError, match="no JavaScript"):
        tenantry.workers.import_from_javascript("cloudflare:sockets")


def test_all_names_what_is_public() -> None:
    for name in tenantry.workers.__all__:
        getattr(tenantry.workers, name)
    assert len(set(tenantry.workers.__all__)) == len(tenantry.workers.__all__)
    # of Cloudflare's own list, but for what JavaScript has
    cloudflares = {
        "Blob", "BlobEnding", "BlobValue", "Body", "Context", "FetchKwargs", "FetchResponse", "File",
        "FormData", "FormDataValue", "Headers", "Request", "RequestInitCfProperties", "Response",
        "WorkerEntrypoint", "env", "fetch", "handler", "import_from_javascript", "patch_env",
        "python_from_rpc", "python_to_rpc", "waitUntil", "wait_until",
    }  # fmt: skip
    assert cloudflares <= set(tenantry.workers.__all__)


def test_the_plugin_provides_workers_where_nothing_else_does(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import workers\ndef test_it(): print(workers.__name__)")
    assert "tenantry.workers" in run_pytest(tmp_path)
    (tmp_path / "workers.py").write_text("")
    assert "tenantry.workers" not in run_pytest(tmp_path)


def run_pytest(folder: Path) -> str:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-s",
            "-p",
            "tenantry.workers.testing.plugin",
            "test_it.py",
        ],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
