"""`Response`, as Cloudflare's documentation and tests say that it behaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from tenantry.workers import Blob, FormData, ReadableStream, Response


@pytest.mark.asyncio
async def test_json_makes_a_response_and_reads_one() -> None:
    made = Response.json({"obj": {"field": 123}}, status=HTTPStatus.NOT_FOUND)
    assert (made.status, made.headers.get("content-type")) == (404, "application/json")
    assert await made.text() == '{"obj": {"field": 123}}'
    assert await Response.from_json([1, 2, 3]).text() == "[1, 2, 3]"
    assert await Response("[1, 2, 3]").json() == [1, 2, 3]


def test_a_content_type_of_ones_own_is_kept() -> None:
    assert Response.json(1, headers={"x": "y"}).headers["content-type"] == "application/json"
    assert Response.json(1, headers={"Content-Type": "42"}).headers["content-type"] == "42"


@pytest.mark.parametrize(
    ("body", "name"),
    [({"a": 1}, "dict"), ([1], "list"), (7, "int"), (object(), "object")],
    ids=["a dict", "a list", "a number", "an object"],
)
def test_what_is_no_body_is_named(body: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"^Unsupported type in Response: {name}$"):
        Response(body)


def test_what_json_has_not_is_named() -> None:
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        Response.json({1, 2})


@pytest.mark.asyncio
async def test_a_body_is_read_once() -> None:
    response = Response("hello")
    assert not response.body_used
    assert await response.text() == "hello"
    assert response.bodyUsed
    for read in (response.text, response.bytes, response.json, response.blob, response.form_data):
        with pytest.raises(OSError, match=r"^Body already used$"):
            await read()
    with pytest.raises(OSError, match=r"^Body already used$"):
        response.clone()


@pytest.mark.asyncio
async def test_a_response_of_another_ones_body_uses_it() -> None:
    first = Response("hello", status=201, headers={"x": "1"})
    second = Response(first.body, status=203, headers=[("y", "2"), ("y", "3")])
    assert await second.text() == "hello"
    assert second.headers["y"] == "2, 3"
    with pytest.raises(OSError, match="Body already used"):
        await first.text()


@pytest.mark.asyncio
async def test_a_clone_has_the_same_body() -> None:
    first = Response(pieces("a", "b"), status=201, headers={"x": "1"})
    second = first.clone()
    assert (await second.text(), await first.text()) == ("ab", "ab")
    assert (second.status, second.headers["x"]) == (201, "1")


@pytest.mark.asyncio
async def test_replace_body_keeps_the_rest() -> None:
    response = Response("test", status=201, status_text="Made", headers={"x": "1"})
    replaced = response.replace_body("other")
    assert (replaced.status, replaced.status_text, replaced.headers["x"]) == (201, "Made", "1")
    assert await replaced.text() == "other"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("é", "é".encode()),
        (b"\0\1", b"\0\1"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (Blob(["a", b"b"]), b"ab"),
    ],
    ids=["str", "bytes", "bytearray", "memoryview", "Blob"],
)
async def test_a_body_is_text_bytes_or_a_blob(body: Any, expected: bytes) -> None:
    assert await Response(body).bytes() == expected


@pytest.mark.asyncio
async def test_a_body_is_anything_that_makes_pieces() -> None:
    def numbers() -> Iterator[bytes]:
        yield b"1"
        yield b"2"

    assert await Response(pieces("a", "é")).text() == "aé"
    assert await Response(numbers()).text() == "12"
    assert await Response(ReadableStream(pieces("x"))).text() == "x"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("text", "text/plain;charset=UTF-8"),
        (b"bytes", None),
        (Blob(b"{}", content_type="application/json"), "application/json"),
        (ReadableStream(iter([b""]), content_type="text/event-stream"), "text/event-stream"),
    ],
    ids=["str", "bytes", "Blob", "stream"],
)
def test_a_body_says_what_it_is(body: Any, content_type: str | None) -> None:
    assert Response(body).headers.get("content-type") == content_type


@pytest.mark.asyncio
async def test_a_form_is_a_body() -> None:
    response = Response(FormData({"field": "value"}))
    assert str(response.headers["content-type"]).startswith("multipart/form-data; boundary=")
    assert (await response.form_data())["field"] == "value"


def test_a_redirect_has_a_redirects_status() -> None:
    response = Response.redirect("https://example.com/", HTTPStatus.SEE_OTHER)
    assert (response.status, response.headers["location"]) == (303, "https://example.com/")
    with pytest.raises(ValueError, match="502"):
        Response.redirect("", HTTPStatus.BAD_GATEWAY)


@pytest.mark.parametrize("status", [101, 199, 600], ids=str)
def test_a_status_is_one_of_a_response(status: int) -> None:
    with pytest.raises(ValueError, match="between 200 and 599"):
        Response("", status=status)


@pytest.mark.parametrize("status", [204, 205, 304], ids=str)
def test_a_status_without_a_body_has_none(status: int) -> None:
    assert Response(None, status=status).body is None
    with pytest.raises(TypeError, match="null body status"):
        Response("body", status=status)


def test_it_shows_what_it_is() -> None:
    assert (
        repr(Response.json([1]))
        == "Response(status=200, status_text='OK', content_type='application/json')"
    )


@pytest.mark.parametrize(
    ("status", "is_ok"), [(200, True), (299, True), (302, False), (500, False)]
)
def test_ok_is_of_the_two_hundreds(status: int, is_ok: bool) -> None:
    response = Response(None, status=status)
    assert response.ok is is_ok
    if status >= 400:
        with pytest.raises(OSError, match="500 Server Error: Internal Server Error"):
            response.raise_for_status()
    else:
        response.raise_for_status()


async def pieces(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text
