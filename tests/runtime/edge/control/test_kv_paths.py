"""KV namespaces, keys and values over HTTP."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from urllib.parse import quote

import anyio
import anyio.abc
import pytest
from starlette.types import Message

from support.control_plane import ACME, GLOBEX, ControlPlane
from tenantry_runtime.edge.control import long_value
from tenantry_runtime.edge.control.upload_slots import UploadSlots

NAMESPACES = "/client/v4/accounts/acme/storage/kv/namespaces"


async def a_namespace(plane: ControlPlane, title: str = "notes") -> str:
    made = await plane.ask("POST", NAMESPACES, json={"title": title})
    return f"{NAMESPACES}/{made.result['id']}"


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["plain", "a/b", "a//b", "ä?&# %", "..."])
async def test_a_value_comes_back_under_its_key(plane: ControlPlane, key: str) -> None:
    path = f"{await a_namespace(plane)}/values/{quote(key, safe='')}"
    value = bytes(range(256))

    put = await plane.ask("PUT", path, content=value)
    got = await plane.ask("GET", path)

    assert put.status == 200
    assert got.response.content == value
    assert (await plane.ask("DELETE", path)).status == 200
    gone = await plane.ask("GET", path)
    assert (gone.status, gone.code) == (404, 10009)


@pytest.mark.asyncio
async def test_metadata_and_end_come_with_a_form_and_the_query(plane: ControlPlane) -> None:
    namespace = await a_namespace(plane)
    form = {"value": (None, b"v"), "metadata": (None, b'{"x":1}')}

    await plane.ask("PUT", f"{namespace}/values/k?expiration_ttl=60", files=form)

    (key,) = (await plane.ask("GET", f"{namespace}/keys")).result
    assert (key["name"], key["metadata"]) == ("k", {"x": 1})
    got = await plane.ask("GET", f"{namespace}/values/k")
    assert got.response.headers["expiration"] == str(key["expiration"])
    assert (await plane.ask("GET", f"{namespace}/metadata/k")).result == {"x": 1}


@pytest.mark.asyncio
async def test_keys_are_listed_to_the_last_by_their_cursor(plane: ControlPlane) -> None:
    namespace = await a_namespace(plane)
    written = [{"key": f"k{number:02}", "value": "v"} for number in range(25)]
    await plane.ask("PUT", f"{namespace}/bulk", json=written)

    names: list[str] = []
    cursor = ""
    for _ in range(3):
        params = {"limit": "10", "cursor": cursor}
        page = await plane.ask("GET", f"{namespace}/keys", params=params)
        names += [each["name"] for each in page.result]
        cursor = page.body["result_info"]["cursor"]

    assert names == [each["key"] for each in written]
    assert cursor == ""


@pytest.mark.asyncio
async def test_namespaces_end_with_an_empty_page(plane: ControlPlane) -> None:
    for title in ("b", "a", "c"):
        await a_namespace(plane, title)

    pages = []
    for page in (1, 2, 3):
        params = {"page": page, "per_page": 2, "order": "title", "direction": "asc"}
        listed = (await plane.ask("GET", NAMESPACES, params=params)).result
        pages.append([each["title"] for each in listed])

    assert pages == [["a", "b"], ["c"], []]


@pytest.mark.asyncio
async def test_values_are_written_read_and_deleted_in_bulk(plane: ControlPlane) -> None:
    namespace = await a_namespace(plane)
    written = [
        {"key": "a", "value": "1", "metadata": {"m": True}},
        {"key": "b", "value": "AAE=", "base64": True},
    ]

    await plane.ask("PUT", f"{namespace}/bulk", json=written)
    asked = {"keys": ["a", "x"], "withMetadata": True}
    got = await plane.ask("POST", f"{namespace}/bulk/get", json=asked)
    binary = await plane.ask("GET", f"{namespace}/values/b")
    await plane.ask("DELETE", f"{namespace}/bulk", content=json.dumps(["a", "b"]))

    assert got.result["values"] == {"a": {"value": "1", "metadata": {"m": True}}, "x": None}
    assert binary.response.content == b"\0\1"
    assert (await plane.ask("GET", f"{namespace}/keys")).result == []


@pytest.mark.asyncio
async def test_a_namespace_of_another_account_is_none(plane: ControlPlane) -> None:
    namespace = await a_namespace(plane)
    foreign = namespace.replace("/acme/", "/globex/")

    for method, path in [("GET", "/keys"), ("PUT", "/values/k"), ("DELETE", "")]:
        refused = await plane.ask(method, foreign + path, token=GLOBEX)
        assert (refused.status, refused.code) == (404, 10013)


@pytest.mark.asyncio
async def test_a_title_stands_for_the_id_where_no_id_is_that(plane: ControlPlane) -> None:
    by_id = await a_namespace(plane, "deadbeef")
    by_title = f"{NAMESPACES}/deadbeef"

    await plane.ask("PUT", f"{by_title}/values/k", content=b"v")

    assert (await plane.ask("GET", f"{by_id}/values/k")).response.content == b"v"
    assert [key["name"] for key in (await plane.ask("GET", f"{by_title}/keys")).result] == ["k"]
    shown = (await plane.ask("GET", by_title)).result
    assert by_id.endswith(shown["id"])
    renamed = await plane.ask("PUT", by_title, json={"title": "notes"})
    assert renamed.result["title"] == "notes"
    assert (await plane.ask("GET", by_title)).code == 10013
    await plane.ask("DELETE", f"{NAMESPACES}/notes")
    assert (await plane.ask("GET", by_id)).code == 10013


@pytest.mark.asyncio
async def test_an_id_is_before_a_title_that_is_the_same(plane: ControlPlane) -> None:
    first = await a_namespace(plane, "first")
    id = first.rpartition("/")[2]
    await a_namespace(plane, id)

    assert (await plane.ask("GET", f"{NAMESPACES}/{id}")).result["title"] == "first"


@pytest.mark.asyncio
async def test_a_title_or_id_of_another_account_is_none(plane: ControlPlane) -> None:
    theirs = await plane.services.kv.create_namespace(GLOBEX, "theirs")
    # a title that is somebody else's id leads to no more than what has the title
    mine = await a_namespace(plane, theirs.id)

    await plane.ask("PUT", f"{NAMESPACES}/{theirs.id}/values/k", content=b"v")

    assert [key["name"] for key in (await plane.ask("GET", f"{mine}/keys")).result] == ["k"]
    assert (await plane.services.kv.list(GLOBEX, theirs.id)).keys == ()
    for method, path in [("GET", "/keys"), ("PUT", "/values/k"), ("DELETE", "")]:
        refused = await plane.ask(method, f"{NAMESPACES}/theirs{path}")
        assert (refused.status, refused.code) == (404, 10013)


@pytest.mark.asyncio
async def test_two_namespaces_do_not_have_one_title(plane: ControlPlane) -> None:
    await a_namespace(plane)

    again = await plane.ask("POST", NAMESPACES, json={"title": "notes"})

    assert (again.status, again.code) == (400, 10014)
    assert again.message.endswith("choose another title")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("values/k?expiration_ttl=59", 400),
        ("values/k?expiration_ttl=x", 400),
        ("values/k?expiration=1", 400),
        (f"values/{'k' * 513}", 414),
    ],
)
async def test_what_may_not_be_kept_is_refused(plane: ControlPlane, path: str, status: int) -> None:
    namespace = await a_namespace(plane)

    assert (await plane.ask("PUT", f"{namespace}/{path}", content=b"v")).status == status
    assert (await plane.ask("GET", f"{namespace}/keys")).result == []


@pytest.mark.asyncio
async def test_long_values_are_in_memory_as_few_at_a_time_as_uploads(plane: ControlPlane) -> None:
    path = f"{await a_namespace(plane)}/values/k"
    value = bytes(range(256)) * 4000
    await plane.ask("PUT", f"{path}?expiration_ttl=60", content=value)

    got = await plane.ask("GET", path)

    assert got.response.content == value
    assert got.response.headers["content-length"] == str(len(value))
    assert "expiration" in got.response.headers
    assert plane.services.uploads.statistics() == (0, 0)
    async with anyio.create_task_group() as tasks:

        async def upload(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            async with plane.services.uploads.hold(ACME):
                task_status.started()
                await anyio.sleep_forever()

        await tasks.start(upload)
        await tasks.start(upload)
        with anyio.move_on_after(0.2) as patience:
            await plane.ask("GET", path)
        assert patience.cancelled_caught
        tasks.cancel_scope.cancel()
    # whoever gave up waiting has no place
    assert plane.services.uploads.statistics() == (0, 0)
    assert (await plane.ask("GET", path)).status == 200


@pytest.mark.asyncio
async def test_a_client_that_takes_nothing_of_a_long_value_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(long_value, "STALL_S", 0.05)
    slots = UploadSlots()
    held = AsyncExitStack()
    await held.enter_async_context(slots.hold(ACME))
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            await anyio.sleep_forever()

    async def receive() -> Message:
        raise AssertionError

    with anyio.fail_after(10):
        await long_value.LongValue(b"x" * 100, {}, held)({"type": "http"}, receive, send)
    assert sent == ["http.response.start", "http.response.body"]
    assert slots.statistics() == (0, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("value", ["a", "ü"])
async def test_a_bulk_value_that_is_no_base64_is_refused(plane: ControlPlane, value: str) -> None:
    written = [{"key": "a", "value": value, "base64": True}]
    answer = await plane.ask("PUT", f"{await a_namespace(plane)}/bulk", json=written)
    assert (answer.status, answer.code) == (400, 10001)
