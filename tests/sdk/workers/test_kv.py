"""KV: Cloudflare's shapes of arguments and answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.worker_code import a_worker
from tenantry.workers import BindingError, Buffer, KvNamespace, ReadableStream
from tenantry.workers._host import Body, HostResponse, HostStream
from tenantry.workers.testing import FakeKV
from tenantry.workers.testing._host import InProcessHost


def a_namespace(fake: FakeKV | None = None) -> KvNamespace:
    return KvNamespace(InProcessHost({"KV": fake or FakeKV()}), "KV")


@pytest.mark.asyncio
async def test_a_value_is_read_as_what_is_asked_for() -> None:
    kv = a_namespace()
    await kv.put("json", '{"a": {"b": [1]}}')
    assert await kv.get("json") == '{"a": {"b": [1]}}'
    read = await kv.get("json", {"type": "json"})
    assert read.a.b == [1]
    raw = await kv.get("json", "arrayBuffer")
    assert isinstance(raw, Buffer)
    assert (bytes(raw), raw.byteLength) == (b'{"a": {"b": [1]}}', 17)
    stream = await kv.get("json", "stream")
    assert isinstance(stream, ReadableStream)
    assert await stream.read() == raw


@pytest.mark.asyncio
@pytest.mark.parametrize("type", ["text", "json", "arrayBuffer", "stream"])
async def test_what_is_not_there_is_none(type: Any) -> None:
    kv = a_namespace()
    assert await kv.get("nothing", type) is None
    assert await kv.getWithMetadata("nothing", type) == {"value": None, "metadata": None}


@pytest.mark.asyncio
async def test_several_keys_are_read_at_once() -> None:
    kv = a_namespace(FakeKV({"a": "1", "b": "2"}))
    assert await kv.get(["a", "b", "c"]) == {"a": "1", "b": "2", "c": None}
    assert await kv.get(["a"], "json") == {"a": 1}


@pytest.mark.asyncio
async def test_metadata_comes_with_the_value_and_with_the_list() -> None:
    kv = a_namespace()
    await kv.put("a", "1", {"metadata": {"author": "Ada"}})
    await kv.put("b", b"\xff", metadata={"author": {"name": "Eve"}})
    found = await kv.getWithMetadata("b", "arrayBuffer")
    assert found.metadata.author.name == "Eve"
    assert found.value == b"\xff"
    listed = await kv.list()
    assert listed["keys"] == [
        {"name": "a", "metadata": {"author": "Ada"}},
        {"name": "b", "metadata": {"author": {"name": "Eve"}}},
    ]


@pytest.mark.asyncio
async def test_a_list_has_pages() -> None:
    kv = a_namespace(FakeKV({f"k{number}": "" for number in range(5)} | {"other": ""}))
    first = await kv.list({"prefix": "k", "limit": 2})
    second = await kv.list(prefix="k", limit=2, cursor=first.cursor)
    third = await kv.list({"prefix": "k", "limit": 2, "cursor": second["cursor"]})
    pages = [[key.name for key in page["keys"]] for page in (first, second, third)]
    assert pages == [["k0", "k1"], ["k2", "k3"], ["k4"]]
    assert [page.list_complete for page in (first, second, third)] == [False, False, True]
    assert "cursor" not in third
    assert (await kv.list(None)).list_complete


@pytest.mark.asyncio
async def test_a_value_expires() -> None:
    now_s = [1000.0]
    kv = a_namespace(FakeKV(now=lambda: now_s[0]))
    await kv.put("a", "1", {"expirationTtl": 60})
    await kv.put("b", "1", expiration=1061)
    assert [key.expiration for key in (await kv.list())["keys"]] == [1060, 1061]
    now_s[0] = 1060.5
    assert [await kv.get("a"), await kv.get("b")] == [None, "1"]
    with pytest.raises(BindingError, match=r"^KV PUT failed: 400 .* at least 60 seconds") as raised:
        await kv.put("a", "1", {"expirationTtl": 59})
    assert (raised.value.name, raised.value.code) == ("Error", 400)


@pytest.mark.asyncio
async def test_what_is_put_is_text_bytes_or_a_stream() -> None:
    fake = FakeKV()
    kv = a_namespace(fake)
    await kv.put("a", memoryview(b"bytes"))
    await kv.put("b", ReadableStream(iter(["st", "ream"])))
    await kv.put("c", "x" * 100_000)
    await kv.put("d", "", None)
    assert fake.values == {"a": "bytes", "b": "stream", "c": "x" * 100_000, "d": ""}
    for value in (None, {"a": 1}, 7):
        with pytest.raises(TypeError):
            await kv.put("e", value)  # type: ignore[arg-type]


@pytest.mark.asyncio
async def test_a_key_is_removed() -> None:
    kv = a_namespace(FakeKV({"a": "1"}))
    await kv.delete("a")
    await kv.delete("nothing")
    assert await kv.get("a") is None


@pytest.mark.asyncio
async def test_a_type_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="'yaml' is no type of a value"):
        await a_namespace().get("a", {"type": "yaml"})


class LongAnswers:
    """A host that has long values as streams, whatever they were asked for as."""

    async def call(
        self, binding: str, method: str, args: list[Any], body: Body = None
    ) -> object | HostResponse | HostStream:
        answer: Any = await FakeKV({"a": "[1]"}).answer("get", ["a", {"type": "stream"}], None)
        return answer if method == "get" else HostResponse(200, [("cf-kv-metadata", "{}")], answer)

    def log(self, level: str, text: str) -> None:
        raise AssertionError(text)


@pytest.mark.asyncio
async def test_a_long_value_has_the_type_that_was_asked_for() -> None:
    kv = KvNamespace(LongAnswers(), "KV")
    assert await kv.get("a") == "[1]"
    assert await kv.get("a", {"type": "json"}) == [1]
    assert await kv.get("a", "arrayBuffer") == b"[1]"
    assert await kv.getWithMetadata("a", "json") == {"value": [1], "metadata": {}}
    assert await kv.get(["a"]) == [1]


@pytest.mark.asyncio
async def test_a_stream_of_a_value_is_a_body(tmp_path: Path) -> None:
    code = """
        from workers import Response, env

        async def on_fetch():
            return Response(await env.KV.get("page", "stream"), headers={"content-type": "text/html"})
    """
    async with a_worker(tmp_path, code, env={"KV": FakeKV({"page": "<p>"})}) as worker:
        response = await worker.fetch("/")
        assert (response.headers["content-type"], await response.text()) == ("text/html", "<p>")
