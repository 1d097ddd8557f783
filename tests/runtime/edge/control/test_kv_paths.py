"""KV namespaces, keys and values over HTTP."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from support.control_plane import GLOBEX, ControlPlane

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
async def test_two_namespaces_do_not_have_one_title(plane: ControlPlane) -> None:
    await a_namespace(plane)

    again = await plane.ask("POST", NAMESPACES, json={"title": "notes"})

    assert (again.status, again.code) == (400, 10014)


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
