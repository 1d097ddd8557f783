"""Forms and blobs: what browsers and curl send is read, and what is written is read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tenantry.workers import Blob, BlobEnding, File, FormData, Response
from tenantry.workers._forms import decode_form, encode_form

# as curl 8 sends `-F field=value -F 'file=@a"b.txt'`
CURL = (
    b"--------------------------d74496d66958873e\r\n"
    b'Content-Disposition: form-data; name="field"\r\n\r\n'
    b"value\r\n"
    b"--------------------------d74496d66958873e\r\n"
    b'Content-Disposition: form-data; name="file"; filename="a\\"b;c.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\n"
    b"line\r\n\r\n--line\r\n"
    b"--------------------------d74496d66958873e--\r\n"
)
CURL_TYPE = "multipart/form-data; boundary=------------------------d74496d66958873e"


@pytest.mark.asyncio
async def test_a_form_of_curl_is_read() -> None:
    form = decode_form(CURL, CURL_TYPE)
    assert form["field"] == "value"
    file = form["file"]
    assert isinstance(file, File)
    assert (file.name, file.content_type) == ('a"b;c.txt', "text/plain")
    assert await file.text() == "line\r\n\r\n--line"


@pytest.mark.asyncio
async def test_fields_of_a_url_encoded_form_are_read() -> None:
    response = Response(
        "a=1&b=x+y%26&a=2&empty=", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    form = await response.form_data()
    assert list(form.items()) == [("a", "1"), ("b", "x y&"), ("a", "2"), ("empty", "")]


names = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)
blobs = st.binary(max_size=200)


@given(st.lists(st.tuples(names, st.text(st.characters(exclude_categories=["Cs"])) | blobs)))
@example([("\\", b""), ("C:\\", "x")])
def test_what_is_written_is_read(fields: list[tuple[str, Any]]) -> None:
    form = FormData()
    for name, value in fields:
        form.append(name, Blob(value) if isinstance(value, bytes) else value)
    body, content_type = encode_form(form)
    read = decode_form(body, content_type)
    assert [
        (name, value.to_bytes() if isinstance(value, Blob) else value)
        for name, value in read.items()
    ] == [(name.replace("%22", '"'), value) for name, value in fields]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x",
        b"--x\r\n",
        CURL[:-4],
        CURL.replace(b"--------------------------d", b"--------------------------e"),
        CURL.replace(b'; name="field"', b""),
        CURL.replace(b"form-data", b"attachment"),
        b"--------------------------d74496d66958873e\r\nno end of headers\r\n"
        b"--------------------------d74496d66958873e--",
    ],
)
def test_a_bad_multipart_body_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="multipart"):
        decode_form(body, CURL_TYPE)


@given(st.binary(max_size=300))
def test_no_body_is_more_than_a_value_error(body: bytes) -> None:
    try:
        decode_form(CURL[:60] + body + CURL[-50:], CURL_TYPE)
    except ValueError:
        pass


@pytest.mark.parametrize("content_type", [None, "application/json", "multipart/form-data"])
def test_what_is_no_form_is_a_type_error(content_type: str | None) -> None:
    with pytest.raises(TypeError):
        decode_form(b"a=1", content_type)


def test_a_form_has_several_values_of_a_name() -> None:
    form = FormData({"key": "foobar"})
    form.append("key", "another")
    form.append("key2", 7)
    assert form.get_all("key") == ["foobar", "another"]
    assert list(form.keys()) == ["key", "key", "key2"]
    assert list(form.values()) == ["foobar", "another", "7"]
    form["key"] = "one"
    assert form.get_all("key") == ["one"]
    form.delete("key")
    assert ("key" in form, form.get("key"), len(form)) == (False, None, 1)
    with pytest.raises(KeyError):
        form["key"]


def test_bytes_are_put_into_a_form_as_a_blob() -> None:
    with pytest.raises(TypeError, match=r"not bytes; Blob\(\.\.\.\) makes one"):
        FormData({"a": b"b"})


@pytest.mark.asyncio
async def test_a_blob_is_made_of_text_bytes_and_blobs() -> None:
    blob = Blob(["sôme ", b"bytes", memoryview(b"!"), Blob("?")], content_type="Text/Plain")
    assert (blob.size, blob.content_type, blob.type) == (13, "text/plain", "text/plain")
    assert await blob.text() == "sôme bytes!?"
    assert await blob.slice(1, 3).bytes() == "ô".encode()
    assert await Blob("a\r\nb", endings=BlobEnding.NATIVE).bytes() == b"a\nb"
    assert b"".join([piece async for piece in blob.stream()]) == await blob.bytes()


def test_a_blob_of_a_blob_has_its_type() -> None:
    typed = Blob("test", content_type="application/json")
    assert Blob(typed).content_type == "application/json"
    assert Blob(typed, content_type="other/type").content_type == "other/type"
    assert Blob([typed]).content_type == ""
    file = File("my file", filename="test.txt", content_type="text/plain")
    assert (file.name, file.content_type) == ("test.txt", "text/plain")
