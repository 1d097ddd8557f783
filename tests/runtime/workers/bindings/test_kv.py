"""`env.KV`: Cloudflare's arguments and answers, and no namespace but the binding's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from support.bindings import (
    INVOCATION,
    OTHER_TENANT,
    TENANT,
    Caller,
    World,
    a_version,
    a_world,
    whole,
)
from support.byte_streams import Pieces
from support.limits import Clock
from tenantry_runtime.tenancy.kv import Entry, LongEntry
from tenantry_runtime.tenancy.kv_entry import MAX_VALUE_BYTES
from tenantry_runtime.workers.bindings import kv as kv_module
from tenantry_runtime.workers.bindings.kv import KvCalls
from tenantry_runtime.workers.interface import (
    CallContext,
    CallRefused,
    HttpResponse,
    StreamResult,
)
from tenantry_runtime.workers.spec import KvBinding

PATIENCE_S = 30.0
LONG = bytes(range(256)) * 2000


@asynccontextmanager
async def a_caller(folder: Path) -> AsyncIterator[tuple[World, Caller]]:
    """A worker of the tenant with a namespace, `KV`."""
    async with a_world(folder) as world:
        namespace = await world.edge.services.store.kv.create_namespace(TENANT, "notes")
        yield world, world.caller(KvBinding(name="KV", namespace_id=namespace.id))


async def put(caller: Caller, key: str, value: Any, **options: Any) -> None:
    assert await caller.call("KV", "put", key, value, options) is None


@pytest.mark.asyncio
async def test_a_value_comes_as_what_is_asked_for(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        await put(caller, "k", '{"a": [1, "ü"]}')

        assert await caller.call("KV", "get", "k") == '{"a": [1, "ü"]}'
        assert await caller.call("KV", "get", "k", "text") == '{"a": [1, "ü"]}'
        assert await caller.call("KV", "get", "k", {"type": "json", "cacheTtl": 60}) == {
            "a": [1, "ü"]
        }
        assert await caller.call("KV", "get", "k", "arrayBuffer") == '{"a": [1, "ü"]}'.encode()
        assert await caller.call("KV", "get", "k", "stream") == '{"a": [1, "ü"]}'.encode()
        assert await caller.call("KV", "get", "other") is None


@pytest.mark.asyncio
async def test_bytes_that_are_no_text_come_as_text_with_marks(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        await put(caller, "k", b"a\xffb")
        assert await caller.call("KV", "get", "k") == "a\N{REPLACEMENT CHARACTER}b"
        with pytest.raises(CallRefused, match="no JSON"):
            await caller.call("KV", "get", "k", "json")


@pytest.mark.asyncio
async def test_metadata_comes_with_the_value(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        await put(caller, "k", "v", metadata={"n": 1})
        await put(caller, "bare", "v")

        found = await caller.call("KV", "getWithMetadata", "k", {"type": "text"})
        assert (found["value"], found["metadata"]) == ("v", {"n": 1})
        bare = await caller.call("KV", "getWithMetadata", "bare")
        assert (bare["value"], bare["metadata"]) == ("v", None)
        missing = await caller.call("KV", "getWithMetadata", "missing")
        assert (missing["value"], missing["metadata"]) == (None, None)


@pytest.mark.asyncio
async def test_a_long_value_goes_in_as_a_body_and_out_as_a_stream(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        body = Pieces(LONG[:99_999], LONG[99_999:])
        await caller.call("KV", "put", "k", None, {"metadata": "Ωß😀\n"}, body=body)
        assert body.is_closed

        found = await caller.call("KV", "get", "k", "arrayBuffer")
        assert isinstance(found, StreamResult)
        assert await whole(found) == LONG
        assert found.content_type == "application/octet-stream"

        with_metadata = await caller.call("KV", "getWithMetadata", "k", "stream")
        assert isinstance(with_metadata, HttpResponse)
        assert await whole(with_metadata) == LONG
        [metadata] = [value for name, value in with_metadata.headers if name == "cf-kv-metadata"]
        assert metadata.isascii()
        assert metadata.isprintable()
        assert json.loads(metadata) == "Ωß😀\n"


@pytest.mark.asyncio
async def test_numbers_that_no_frame_has_come_as_they_were_written(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        await put(caller, "k", str(1 << 80))

        found = await caller.call("KV", "get", "k", "json")

        assert isinstance(found, StreamResult)
        assert (await whole(found), found.content_type) == (b"%d" % (1 << 80), "application/json")


@pytest.mark.asyncio
async def test_several_keys_are_read_at_once(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        await put(caller, "a", "1", metadata="m")
        await put(caller, "b", '{"x": 2}')

        keys = ["a", "b", "c"]
        assert await caller.call("KV", "get", keys) == {"a": "1", "b": '{"x": 2}', "c": None}
        assert await caller.call("KV", "get", keys, "json") == {"a": 1, "b": {"x": 2}, "c": None}
        assert await caller.call("KV", "getWithMetadata", ["a", "c"]) == {
            "a": {"value": "1", "metadata": "m"},
            "c": None,
        }
        with pytest.raises(CallRefused, match="maximum of 100 keys"):
            await caller.call("KV", "get", [f"{at}" for at in range(101)])
        with pytest.raises(CallRefused, match='Use "json" or "text"'):
            await caller.call("KV", "get", keys, "stream")

        await put(caller, "long", "x" * 300_000)
        found = await caller.call("KV", "get", ["a", "long"])
        assert found.content_type == "application/json"
        assert json.loads(await whole(found)) == {"a": "1", "long": "x" * 300_000}


@pytest.mark.asyncio
async def test_a_list_has_cloudflares_shape(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (world, caller):
        clock = Clock()
        world.edge.services.store.database.now_ms = clock
        await put(caller, "a:1", "v", metadata={"m": 1})
        await put(caller, "a:2", "v", expirationTtl=60)
        await put(caller, "b", "v")

        assert await caller.call("KV", "list", {"prefix": "a:"}) == {
            "keys": [
                {"name": "a:1", "metadata": {"m": 1}},
                {"name": "a:2", "expiration": clock.now_ms // 1000 + 60},
            ],
            "list_complete": True,
            "cacheStatus": None,
        }
        first = await caller.call("KV", "list", {"limit": 2})
        assert first["list_complete"] is False
        rest = await caller.call("KV", "list", {"limit": 2, "cursor": first["cursor"]})
        assert [key["name"] for key in rest["keys"]] == ["b"]
        assert rest["list_complete"] is True

        clock.advance(60)
        assert await caller.call("KV", "get", "a:2") is None


@pytest.mark.asyncio
async def test_a_key_is_deleted(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        await put(caller, "k", "v")
        assert await caller.call("KV", "delete", "k") is None
        assert await caller.call("KV", "delete", "k") is None
        assert await caller.call("KV", "get", "k") is None


@pytest.mark.asyncio
async def test_a_namespace_of_another_tenant_is_none_even_if_a_version_names_it(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        kv = world.edge.services.store.kv
        theirs = await kv.create_namespace(OTHER_TENANT, "theirs")
        owner = world.caller(KvBinding(name="KV", namespace_id=theirs.id), tenant=OTHER_TENANT)
        await put(owner, "secret", "s")
        thief = world.caller(KvBinding(name="KV", namespace_id=theirs.id))

        calls: list[tuple[str, list[Any]]] = [
            ("get", ["secret"]),
            ("get", [["secret", "x"]]),
            ("getWithMetadata", ["secret"]),
            ("put", ["secret", "forged"]),
            ("delete", ["secret"]),
            ("list", []),
        ]
        for method, args in calls:
            with pytest.raises(CallRefused, match=r"KV \w+ failed: 404"):
                await thief.call("KV", method, *args)

        assert await owner.call("KV", "get", "secret") == "s"


HOSTILE: list[tuple[str, list[Any], str, str]] = [
    ("get", [""], "TypeError", "Key name cannot be empty."),
    ("get", [".."], "TypeError", '".." is not allowed as a key name.'),
    ("get", ["x" * 513], "Error", "KV GET failed: 414 UTF-8 encoded length of 513 exceeds"),
    ("get", ["k\ud800"], "TypeError", "no text"),
    ("get", [7], "TypeError", "the key must be a string"),
    ("get", [None], "TypeError", "the key must be a string"),
    ("get", [{"key": "k"}], "TypeError", "the key must be a string"),
    ("get", [["k", 7]], "TypeError", "the keys must be strings"),
    ("get", ["k", "blob"], "TypeError", "unknown response type 'blob'"),
    ("get", ["k", ["text"]], "TypeError", "the options must be an object"),
    ("get", ["k", {"type": 7}], "TypeError", "type must be a string"),
    ("get", ["k", "text", "theirs"], "TypeError", "takes 2 arguments"),
    ("put", ["k"], "TypeError", "the value must be text or bytes"),
    ("put", ["k", 7], "TypeError", "the value must be text or bytes"),
    ("put", ["k", {"v": 1}], "TypeError", "the value must be text or bytes"),
    ("put", ["k", "\ud800"], "TypeError", "no text"),
    (
        "put",
        ["k", "v", {"expirationTtl": 59}],
        "Error",
        "KV PUT failed: 400 Invalid expiration_ttl of 59. Expiration TTL must be at least 60.",
    ),
    ("put", ["k", "v", {"expirationTtl": "nan"}], "TypeError", "must be a whole number"),
    ("put", ["k", "v", {"expirationTtl": 60.5}], "TypeError", "must be a whole number"),
    ("put", ["k", "v", {"expirationTtl": True}], "TypeError", "must be a whole number"),
    ("put", ["k", "v", {"expirationTtl": float("inf")}], "TypeError", "must be a whole number"),
    ("put", ["k", "v", {"expiration": 1}], "Error", "KV PUT failed: 400 Invalid expiration"),
    (
        "put",
        ["k", "v", {"metadata": "x" * 1023}],
        "Error",
        "KV PUT failed: 413 Metadata length",
    ),
    ("put", ["k", "v", {"metadata": 1 << 80}], "Error", "serializable"),
    ("delete", [["a", "b"]], "TypeError", "the key must be a string"),
    ("list", [{"limit": 1001}], "Error", "KV GET failed: 400 Invalid key_count_limit of 1001"),
    ("list", [{"limit": 0}], "Error", "Please specify an integer greater than 0"),
    ("list", [{"cursor": "\0"}], "Error", "Invalid cursor"),
    ("list", [{"prefix": 7}], "TypeError", "prefix must be a string"),
    ("list", [{7: 7}], "TypeError", "the options must be an object"),
    ("namespace", [], "TypeError", "no method 'namespace'"),
    ("__class__", [], "TypeError", "no method"),
]
"""Method and arguments; the name of the error, and a part of what it says."""


@pytest.mark.asyncio
async def test_hostile_and_wrong_arguments_are_refused_by_name(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        for method, args, name, text in HOSTILE:
            with pytest.raises(CallRefused) as refused:
                await caller.call("KV", method, *args)
            assert (method, args, refused.value.name) == (method, args, name)
            assert text in refused.value.message


@pytest.mark.asyncio
async def test_a_body_over_the_limit_is_not_read_to_its_end(tmp_path: Path) -> None:
    async with a_caller(tmp_path) as (_, caller):
        body = Pieces(*[bytes(5 << 20)] * 9)
        with pytest.raises(CallRefused, match="KV PUT failed: 413"):
            await caller.call("KV", "put", "k", None, {}, body=body)

        assert body.num_read == 6
        assert body.is_closed
        assert 5 * (5 << 20) == MAX_VALUE_BYTES


@pytest.mark.asyncio
async def test_a_tenant_that_reads_nothing_keeps_little_in_memory_and_nobody_else_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # room for the longest value, and one of LONG besides
    monkeypatch.setattr(kv_module, "HELD_EACH", MAX_VALUE_BYTES + len(LONG))
    async with a_caller(tmp_path) as (world, caller):
        kv = world.edge.services.store.kv
        await caller.call("KV", "put", "k", None, body=Pieces(LONG))
        await put(caller, "short", "v")
        unread = [await caller.call("KV", "get", "k", "stream") for _ in range(2)]
        others = await kv.create_namespace(OTHER_TENANT, "theirs")
        neighbor = world.caller(KvBinding(name="KV", namespace_id=others.id), tenant=OTHER_TENANT)

        with anyio.move_on_after(0.2) as waited:
            await caller.call("KV", "get", "k", "stream")
        assert waited.cancelled_caught
        # what is short needs no such room, nor does another tenant's
        assert await caller.call("KV", "get", "short") == "v"
        await neighbor.call("KV", "put", "k", None, body=Pieces(LONG))
        await (await neighbor.call("KV", "get", "k")).stream.aclose()

        await unread[0].stream.aclose()
        with anyio.fail_after(PATIENCE_S):
            again = await caller.call("KV", "get", "k", "stream")
            # read to its end, it is held no more
            assert await whole(again) == LONG
            again = await caller.call("KV", "get", "k", "stream")
        for answer in (*unread, again):
            await answer.stream.aclose()
            await answer.stream.aclose()


@pytest.mark.asyncio
async def test_bodies_that_come_in_are_held_to_what_a_tenant_may_have_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_module, "HELD_EACH", 3 << 20)
    async with a_caller(tmp_path) as (_, caller):
        slow = SlowPieces(bytes(2 << 20))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(caller.call, "KV", "put", "slow", None, {}, body=slow))
            await slow.waits.wait()
            with pytest.raises(CallRefused, match="KV PUT failed: 429"):
                await caller.call("KV", "put", "k", None, body=Pieces(bytes(2 << 20)))
            slow.goes_on.set()
        await caller.call("KV", "put", "k", None, body=Pieces(bytes(2 << 20)))
        listed = await caller.call("KV", "list")
    assert [key["name"] for key in listed["keys"]] == ["k", "slow"]


class SlowPieces(Pieces):
    """Gives its pieces, and then waits for its end."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(*pieces)
        self.waits, self.goes_on = anyio.Event(), anyio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in super().__aiter__():
            yield piece
        self.waits.set()
        await self.goes_on.wait()


class Emptied:
    """A store in which a long value is emptied between two looks."""

    async def get_short(self, *_: object, **__: object) -> LongEntry:
        return LongEntry(num_bytes=1 << 20)

    async def get(self, *_: object) -> Entry:
        return Entry(value=b"", metadata=None, expires_ms=None)


@pytest.mark.asyncio
async def test_a_long_value_that_was_emptied_meanwhile_is_empty() -> None:
    calls = KvCalls(Emptied())  # type: ignore[arg-type] # a stand-in
    context = CallContext(version=a_version(tenant=TENANT), invocation=INVOCATION)
    binding = KvBinding(name="KV", namespace_id="n")
    answer = await calls.call(context, binding, "get", ["k", "text"], None)
    assert isinstance(answer, StreamResult)
    assert b"".join([piece async for piece in answer.stream]) == b""
