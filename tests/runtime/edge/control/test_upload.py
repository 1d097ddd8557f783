"""Uploads: what becomes a version, and what is refused with file, line and remedy."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from support.control_plane import ACME, GLOBEX, HELLO, RAISES, ControlPlane, an_upload
from tenantry_runtime.errors import NoSuchRecord
from tenantry_runtime.tenancy.workers import WorkerStore
from tenantry_runtime.workers.spec import (
    AiBinding,
    JsonBinding,
    KvBinding,
    SecretBinding,
    TextBinding,
    WorkerVersion,
)

PYTHON = "text/x-python"
ENTRY = (HELLO, PYTHON)


async def deployed(workers: WorkerStore, name: str = "hello") -> WorkerVersion:
    return await workers.resolve(ACME, name, 0.0)


@pytest.mark.asyncio
async def test_a_worker_that_is_put_answers_at_once(plane: ControlPlane) -> None:
    bindings = [{"name": "AI", "type": "ai"}, {"name": "V", "type": "plain_text", "text": "hi"}]

    put = await plane.upload(bindings=bindings, limits={"cpu_ms": 50})

    version = await deployed(plane.workers)
    assert put.status == 200
    assert put.result["startup_time_ms"] == 12
    assert put.result["deployment_id"] == version.version_id.replace("-", "")
    assert (version.main_module, version.number, version.limits.cpu_ms) == ("entry.py", 1, 50)
    assert version.bindings == (AiBinding(name="AI"), TextBinding(name="V", text="hi"))


@pytest.mark.asyncio
async def test_a_version_that_is_posted_waits_to_be_deployed(plane: ControlPlane) -> None:
    await plane.upload()

    posted = await plane.upload(
        "versions", annotations={"workers/tag": "t", "workers/message": "m"}
    )

    assert posted.result["number"] == 2
    assert posted.result["annotations"]["workers/tag"] == "t"
    assert (await deployed(plane.workers)).number == 1
    assert (await plane.ask("GET", f"versions/{posted.result['id']}")).result["number"] == 2


@pytest.mark.asyncio
async def test_a_version_of_a_worker_that_is_not_there_is_refused(plane: ControlPlane) -> None:
    posted = await plane.upload("versions")

    assert (posted.status, posted.code) == (404, 10007)


@pytest.mark.asyncio
async def test_files_come_back_as_they_were_uploaded(plane: ControlPlane) -> None:
    png = b"\x89PNG\r\n--x\r\n"
    await plane.upload(modules={"entry.py": ENTRY, "data/a.png": (png, "application/octet-stream")})

    content = await plane.ask("GET", "content/v2")

    assert content.response.headers["cf-entrypoint"] == "entry.py"
    assert png in content.response.content and HELLO.encode() in content.response.content


@pytest.mark.asyncio
async def test_a_vendored_package_is_taken_but_for_the_runtimes_own(plane: ControlPlane) -> None:
    files = {
        "entry.py": ENTRY,
        "python_modules/greet/__init__.py": ("import js", "application/octet-stream"),
        "python_modules/workers/__init__.py": ("import js", "application/octet-stream"),
    }

    put = await plane.upload(modules=files)

    paths = [file.path for file in (await deployed(plane.workers)).files]
    assert paths == ["entry.py", "python_modules/greet/__init__.py"]
    assert "python_modules/workers" in put.body["messages"][0]["message"]


REFUSED_SOURCES = {
    "syntax": ("def f(:\n", 1, "SyntaxError"),
    "import js": ("x = 1\nimport js\n", 2, "Pyodide"),
    "from js": ("\n\nfrom js import Object\n", 3, "Pyodide"),
    "pyodide": ("def f():\n    from pyodide.ffi import to_js\n", 2, "Pyodide"),
    "a zero byte": ("x = 1\n\0", 2, "zero"),
    "start-up": (f"x = 1\n{RAISES}('no')\n", 2, "RuntimeError: no"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", REFUSED_SOURCES)
async def test_a_source_that_cannot_run_is_refused_with_file_and_line(
    plane: ControlPlane, case: str
) -> None:
    source, line, named = REFUSED_SOURCES[case]

    put = await plane.upload(modules={"entry.py": ENTRY, "pkg/a.py": (source, PYTHON)})

    assert (put.status, put.code) == (400, 10021)
    assert put.message.startswith(f"pkg/a.py:{line}: ")
    assert named in put.message


@pytest.mark.asyncio
async def test_an_import_that_the_source_can_do_without_is_no_reason(plane: ControlPlane) -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import js\n"
        "try:\n    import pyodide\nexcept ImportError:\n    pyodide = None\n"
    )

    assert (await plane.upload(modules={"entry.py": (source, PYTHON)})).status == 200


@pytest.mark.asyncio
async def test_a_source_that_takes_a_parser_down_takes_nothing_else(plane: ControlPlane) -> None:
    source = "x = " + "-" * 400_000 + "1\n"

    put = await plane.upload(modules={"entry.py": (source, PYTHON)})

    assert (put.status, put.code) == (400, 10021)


REFUSED_MODULES: dict[str, tuple[str, bytes, str, str]] = {
    "JavaScript": ("a.js", b"export {}", "application/javascript+module", "JavaScript"),
    "wasm": ("a.wasm", b"\0asm\1\0\0\0", "application/wasm", "WebAssembly"),
    "wasm by its bytes": ("a.bin", b"\0asm\1\0\0\0", "application/octet-stream", "WebAssembly"),
    "Emscripten": (
        "python_modules/a.cpython-313-wasm32-emscripten.so",
        b"x",
        "application/octet-stream",
        "Pyodide",
    ),
    "ELF": ("python_modules/a.so", b"\x7fELF\2", "application/octet-stream", "native"),
    "absolute": ("/etc/passwd", b"x", "text/plain", "no name of a file"),
    "parent": ("a/../../b", b"x", "text/plain", "no name of a file"),
    "backslash": ("a\\b", b"x", "text/plain", "no name of a file"),
    "empty segment": ("a//b", b"x", "text/plain", "no name of a file"),
    "a drive": ("C:b", b"x", "text/plain", "no name of a file"),
    "below a file": ("entry.py/x", b"x", "text/plain", "which is a file"),
    "case alone": ("Entry.py", b"", PYTHON, "upper and lower case"),
    "kind": ("a.html", b"x", "text/html", "'text/html'"),
    "Python by another name": ("a.txt", b"x", PYTHON, ".py"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", REFUSED_MODULES)
async def test_a_file_that_no_worker_has_is_refused_by_name(plane: ControlPlane, case: str) -> None:
    name, content, kind, named = REFUSED_MODULES[case]

    put = await plane.upload(modules={"entry.py": ENTRY, name: (content, kind)})

    assert (put.status, put.code) == (400, 10021)
    assert named in put.message
    with pytest.raises(NoSuchRecord):
        await deployed(plane.workers)


REFUSED_METADATA: dict[str, tuple[dict[str, Any], str]] = {
    "D1": ({"bindings": [{"name": "DB", "type": "d1", "id": "x"}]}, "D1 is not available"),
    "R2": ({"bindings": [{"name": "B", "type": "r2_bucket", "bucket_name": "x"}]}, "R2"),
    "Durable Objects": (
        {"bindings": [{"name": "D", "type": "durable_object_namespace", "class_name": "X"}]},
        "Durable Object",
    ),
    "queues": ({"bindings": [{"name": "Q", "type": "queue", "queue_name": "x"}]}, "queue"),
    "an unknown kind": ({"bindings": [{"name": "X", "type": "new"}]}, "'new'"),
    "migrations": ({"migrations": {"new_tag": "v1"}}, "Durable Objects"),
    "a service worker": ({"body_part": "script"}, "JavaScript"),
    "static assets": ({"assets": {"jwt": "x"}}, "static assets"),
    "tail workers": ({"tail_consumers": [{"service": "x"}]}, "tail workers"),
    "no such main module": ({"main_module": "other.py"}, "other.py"),
    "no main module": ({"main_module": ""}, "main_module"),
    "CPU time": ({"limits": {"cpu_ms": 300_001}}, "cpu_ms"),
    "an unknown limit": ({"limits": {"memory": 1}}, "memory"),
    "a name twice": (
        {
            "bindings": [
                {"name": "A", "type": "ai"},
                {"name": "A", "type": "plain_text", "text": "x"},
            ]
        },
        "twice",
    ),
    "more bindings than there may be": (
        {"bindings": [{"name": f"A{number}", "type": "ai"} for number in range(129)]},
        "129 bindings",
    ),
    "no name for a binding": ({"bindings": [{"name": "a-b", "type": "ai"}]}, "a-b"),
    "a name that is Python's": ({"bindings": [{"name": "__class__", "type": "ai"}]}, "__class__"),
    "a name that is fetch's": ({"bindings": [{"name": "FETCH", "type": "ai"}]}, "FETCH"),
    "a variable with more than 64 bits": (
        {"bindings": [{"name": "A", "type": "json", "json": {"a": [1, {"b": 1 << 64}]}}]},
        "A has an integer of more than 64 bits",
    ),
    "a variable with fewer than 64 bits can say": (
        {"bindings": [{"name": "A", "type": "json", "json": -(1 << 63) - 1}]},
        "64 bits",
    ),
    "a variable that is nested too deep": (
        {"bindings": [{"name": "A", "type": "json", "json": json.loads("[" * 66 + "]" * 66)}]},
        "nested",
    ),
    "a variable that is too large": (
        {"bindings": [{"name": "A", "type": "plain_text", "text": "x" * 6000}]},
        "6000",
    ),
    "a namespace of nobody": (
        {"bindings": [{"name": "KV", "type": "kv_namespace", "namespace_id": "f" * 32}]},
        "KV namespace",
    ),
    "a service that is not there": (
        {"bindings": [{"name": "S", "type": "service", "service": "other"}]},
        "other",
    ),
    "nothing to inherit": ({"bindings": [{"name": "A", "type": "inherit"}]}, "inherited"),
    "bindings of another shape": ({"bindings": [{"name": "A", "type": "plain_text"}]}, "text"),
    "an extension that there is not": ({"tenantry": {"memory": 1}}, "memory"),
    "an isolation that there is not": ({"tenantry": {"isolation": "none"}}, "isolation"),
    "another Python": ({"tenantry": {"requires_python": ">=3.99"}}, ">=3.99"),
    "no version of Python": ({"tenantry": {"requires_python": "newer"}}, "'newer' is none"),
    "a namespace that no database has": (
        {"bindings": [{"name": "KV", "type": "kv_namespace", "namespace_id": "\0"}]},
        "namespace_id",
    ),
    "a service that no database has": (
        {"bindings": [{"name": "S", "type": "service", "service": "\0"}]},
        "worker",
    ),
    "no JSON object": ({"bindings": 3}, "malformed"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", REFUSED_METADATA)
async def test_what_there_is_not_is_refused_by_name(plane: ControlPlane, case: str) -> None:
    metadata, named = REFUSED_METADATA[case]

    put = await plane.upload(**metadata)

    assert (put.status, put.code) == (400, 10021)
    assert named in put.message


@pytest.mark.asyncio
async def test_every_integer_that_workers_can_get_is_kept(plane: ControlPlane) -> None:
    numbers = [-(1 << 63), (1 << 64) - 1, True, 1.5]

    await plane.upload(bindings=[{"name": "A", "type": "json", "json": numbers}])

    (binding,) = (await deployed(plane.workers)).bindings
    assert binding == JsonBinding(name="A", json=numbers)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(numbers)) == numbers


@pytest.mark.asyncio
async def test_a_namespace_may_be_named_by_its_title_and_is_kept_by_its_id(
    plane: ControlPlane,
) -> None:
    mine = await plane.services.kv.create_namespace(ACME, "deadbeef")
    await plane.services.kv.create_namespace(GLOBEX, "theirs")

    put = await plane.upload(
        bindings=[{"name": "KV", "type": "kv_namespace", "namespace_id": "deadbeef"}]
    )
    foreign = await plane.upload(
        bindings=[{"name": "KV", "type": "kv_namespace", "namespace_id": "theirs"}]
    )

    assert put.status == 200
    assert (await deployed(plane.workers)).bindings == (KvBinding(name="KV", namespace_id=mine.id),)
    assert (foreign.status, foreign.code) == (400, 10021)


@pytest.mark.asyncio
async def test_a_namespace_of_another_account_is_none(plane: ControlPlane) -> None:
    foreign = await plane.services.kv.create_namespace(GLOBEX, "theirs")
    binding = {"name": "KV", "type": "kv_namespace", "namespace_id": foreign.id}

    put = await plane.upload(bindings=[binding])

    assert (put.status, put.code) == (400, 10021)


@pytest.mark.asyncio
async def test_bindings_come_over_from_the_version_before(plane: ControlPlane) -> None:
    await plane.upload(
        bindings=[
            {"name": "KEPT", "type": "plain_text", "text": "1"},
            {"name": "GONE", "type": "json", "json": 2},
            {"name": "KEY", "type": "secret_text", "text": "hush"},
        ]
    )

    await plane.upload(
        bindings=[{"name": "KEPT", "type": "inherit"}], keep_bindings=["secret_text"]
    )

    version = await deployed(plane.workers)
    assert version.bindings == (TextBinding(name="KEPT", text="1"), SecretBinding(name="KEY"))
    values = await plane.workers.secrets.values(version)
    assert {name: value.value for name, value in values.items()} == {"KEY": "hush"}


@pytest.mark.asyncio
async def test_secrets_stay_where_a_client_says_nothing_of_them(plane: ControlPlane) -> None:
    secret = {"name": "KEY", "type": "secret_text", "text": "hush"}
    variable = {"name": "V", "type": "plain_text", "text": "1"}
    await plane.upload(bindings=[secret, variable])

    await plane.upload()
    assert (await deployed(plane.workers)).bindings == (SecretBinding(name="KEY"),)
    await plane.upload(keep_bindings=[])
    assert (await deployed(plane.workers)).bindings == ()


@pytest.mark.asyncio
async def test_a_version_that_cannot_start_leaves_nothing(plane: ControlPlane) -> None:
    await plane.upload(modules={"entry.py": (f"{RAISES}()\n", PYTHON)})

    assert (await plane.ask("GET", "/client/v4/accounts/acme/workers/scripts")).result == []
    service = await plane.ask("GET", "/client/v4/accounts/acme/workers/services/hello")
    assert (service.status, service.code) == (404, 10090)


@pytest.mark.asyncio
async def test_a_version_that_cannot_start_leaves_what_was_deployed(plane: ControlPlane) -> None:
    await plane.upload()

    refused = await plane.upload(modules={"entry.py": (f"{RAISES}()\n", PYTHON)})

    assert refused.code == 10021
    assert (await deployed(plane.workers)).number == 1
    assert len((await plane.ask("GET", "versions")).result["items"]) == 1


@pytest.mark.asyncio
async def test_a_name_that_no_worker_has_is_refused(plane: ControlPlane) -> None:
    put = await plane.ask(
        "PUT", "/client/v4/accounts/acme/workers/scripts/Big.Name", files=an_upload()
    )

    assert put.code == 10021
    assert "Big.Name" in put.message


@pytest.mark.asyncio
async def test_metadata_may_be_nested_as_deep_as_it_likes(plane: ControlPlane) -> None:
    metadata = '{"bindings":' + "[" * 100_000
    form = [("metadata", ("metadata", metadata, "application/json")), *an_upload()[1:]]

    assert (await plane.ask("PUT", "", files=form)).code == 10021


@pytest.mark.asyncio
async def test_messages_say_what_has_no_effect(plane: ControlPlane) -> None:
    put = await plane.upload(placement={"mode": "smart"})

    assert json.dumps(put.body["messages"]).count("placement") == 1
