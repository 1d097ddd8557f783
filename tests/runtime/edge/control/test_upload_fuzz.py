"""Whatever is uploaded, whoever reads it goes on: refused or taken, with nothing left open."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
from hypothesis import HealthCheck, example, given, strategies as st
from starlette.requests import Request

from support.control_plane import HELLO, SCRIPT, a_control_plane
from support.examples import examples
from tenantry_runtime.edge.control import ControlLimits
from tenantry_runtime.edge.control.form import Part, read_form
from tenantry_runtime.edge.control.metadata import read_bindings, read_limits, read_metadata
from tenantry_runtime.edge.control.modules import read_modules
from tenantry_runtime.edge.control.project import Project, check_interpreter, requirements_of
from tenantry_runtime.edge.control.project_scan import scan
from tenantry_runtime.errors import BodyTooLarge, InvalidInput, ScriptRefused
from tenantry_runtime.tenancy import open_store

PYTHON = "text/x-python"

MAX_BYTES, MAX_PARTS = 4_096, 8

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.one_of(
    TEXT,
    st.sampled_from(
        [
            "entry.py",
            "a/b.py",
            "../x",
            "/etc/passwd",
            "a//b",
            "pyproject.toml",
            "python_modules/a/__init__.py",
            "python_modules/a-1.dist-info/METADATA",
            "x" * 600,
            'a"; filename="b',
        ]
    ),
)
KINDS = st.one_of(
    TEXT,
    st.sampled_from(
        [
            "text/x-python",
            "text/x-python-requirement",
            "application/octet-stream",
            "application/javascript",
            "text/plain; charset=x",
        ]
    ),
)
CONTENTS = st.one_of(
    st.binary(max_size=64),
    st.sampled_from(
        [
            HELLO.encode(),
            b"\0asm",
            b"\x7fELF",
            b"\r\n--x",
            b"--x--\r\n",
            b'[project]\nrequires-python = ">=3.99"\n',
            b"Requires-Python: nonsense\n",
            b"A" * 5_000,
        ]
    ),
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
BINDINGS = st.fixed_dictionaries(
    {"name": TEXT | st.just("A"), "type": st.sampled_from(["ai", "json", "d1", "inherit", "x"])},
    optional={"text": ANY_JSON, "json": ANY_JSON, "namespace_id": ANY_JSON, "service": ANY_JSON},
)
METADATA = st.one_of(
    ANY_JSON,
    st.just({"main_module": "entry.py"}),
    st.fixed_dictionaries(
        {"main_module": st.just("entry.py") | TEXT},
        optional={
            "bindings": st.lists(BINDINGS, max_size=3) | ANY_JSON,
            "limits": ANY_JSON,
            "annotations": ANY_JSON,
            "keep_bindings": ANY_JSON,
            "migrations": ANY_JSON,
            "observability": ANY_JSON,
        },
    ),
)


def a_written_part(name: str, content: bytes, headers: bytes) -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="f"\r\n'.encode()
    return head + headers + b"\r\n" + content + b"\r\n"


@st.composite
def whole_forms(draw: st.DrawFn) -> bytes:
    """Build a form that is one: with metadata, a main module and other parts."""
    metadata = json.dumps(draw(METADATA)).encode()
    others = draw(st.dictionaries(NAMES, st.tuples(CONTENTS, KINDS), max_size=4))
    parts = {
        "metadata": (metadata, "application/json"),
        "entry.py": (draw(st.sampled_from([HELLO.encode(), b"def f(", b"import js"])), PYTHON),
        **others,
    }
    written = [
        a_written_part(name, content, f"Content-Type: {kind}\r\n".encode())
        for name, (content, kind) in draw(st.permutations(list(parts.items())))
    ]
    return b"".join(written) + b"--x--\r\n"


@st.composite
def damaged_forms(draw: st.DrawFn) -> bytes:
    """Build what is nearly a form: with headers of another kind, cut off, or overwritten."""
    written = bytearray()
    headers = [b"", b"Content-Type: text/plain\r\n", b"X: y\r\n", b"X\n", b": :\r\n"]
    for name in draw(st.lists(NAMES, max_size=4)):
        written += a_written_part(name, draw(CONTENTS), draw(st.sampled_from(headers)))
    written += draw(st.sampled_from([b"--x--\r\n", b"--x--", b"--x", b""]))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(written)))
        written[place : place + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(written)


FORMS = st.one_of(whole_forms(), whole_forms(), damaged_forms(), st.binary(max_size=200))


def in_chunks(content: bytes, size: int) -> Iterator[bytes]:
    yield from (content[place : place + size] for place in range(0, len(content), size))


def a_request(content: bytes, size: int) -> Request:
    chunks = in_chunks(content, size)

    async def receive() -> dict[str, Any]:
        chunk = next(chunks, None)
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    return Request({"type": "http", "method": "PUT", "headers": headers}, receive)


async def read(content: bytes, size: int) -> dict[str, Part]:
    return await read_form(
        a_request(content, size), max_bytes=MAX_BYTES, max_parts=MAX_PARTS, timeout_s=60
    )


def understood(parts: dict[str, Part]) -> None:
    """Do what an upload does before anything is kept."""
    metadata, _ = read_metadata(parts.pop("metadata", a_part()).content)
    modules = read_modules(parts.values(), metadata.main_module)
    check_interpreter(modules.files, Project(), "3.11.7")
    for file in modules.files:
        # as its process prints it
        printed = json.dumps(scan(file.content)).encode()
        project = msgspec.json.decode(printed, type=Project)
        requirements_of(modules.files, modules.requirements, project.dependencies)
    read_bindings(metadata.bindings)
    read_limits(metadata.limits)
    for file in modules.files:
        assert not file.path.startswith("/") and ".." not in file.path.split("/")


def a_part() -> Part:
    return Part(name="metadata", content=b"", content_type="", filename=None)


async def read_twice(content: bytes, size: int) -> None:
    whole: object
    try:
        whole = await read(content, max(len(content), 1))
    except (InvalidInput, BodyTooLarge) as error:
        whole = type(error)
    try:
        parts = await read(content, size)
    except (InvalidInput, BodyTooLarge) as error:
        # how it was cut into pieces makes no difference
        assert whole is type(error)
        return
    assert parts == whole
    assert len(parts) <= MAX_PARTS
    assert sum(len(part.content) for part in parts.values()) <= MAX_BYTES
    with suppress(ScriptRefused):
        understood(parts)


def test_any_upload_is_read_or_refused() -> None:
    # one event loop for all: to make one takes longer than a case
    with asyncio.Runner() as runner:

        @examples(50, suppress_health_check=list(HealthCheck))
        @given(content=FORMS, size=st.integers(1, 200))
        @example(content=b"\n\0--x--\r\n", size=1)
        def check(content: bytes, size: int) -> None:
            runner.run(read_twice(content, size))

        check()


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_any_upload_is_answered_and_leaves_nothing_open(empty_state: Path, tmp_path: Path) -> None:
    directory = tmp_path / "state"
    shutil.copytree(empty_state, directory)

    async def fuzz() -> None:
        limits = ControlLimits(upload_bytes=MAX_BYTES, modules=MAX_PARTS)
        async with (
            open_store(directory) as store,
            a_control_plane(store, directory, limits=limits) as plane,
        ):
            headers = {"content-type": "multipart/form-data; boundary=x"}

            async def put(content: bytes) -> httpx.Response:
                async with plane.client() as client:
                    return await client.put(SCRIPT, content=content, headers=headers)

            await put(b"--x--\r\n")
            gc.collect()
            before = num_descriptors()

            async def answer(content: bytes) -> None:
                response = await put(content)
                assert response.status_code in (200, 400, 413), response.text
                body = response.json()
                assert body["success"] is (response.status_code == 200)

            for content in cases:
                await answer(content)
            gc.collect()
            assert num_descriptors() <= before

    cases: list[bytes] = []

    # through the application and the store, which take a hundred times as long
    @examples(1, database=None, suppress_health_check=list(HealthCheck))
    @given(content=FORMS)
    def collect(content: bytes) -> None:
        cases.append(content)

    collect()
    anyio.run(fuzz)
