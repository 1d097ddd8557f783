"""Headers: pairs in their order, read as the web and as Python's HTTP messages are read."""

from __future__ import annotations

import pytest

from tenantry.workers import Headers


def test_cookies_stay_apart_where_other_names_are_joined() -> None:
    headers = Headers(
        [
            ("Set-Cookie", "a=1, x"),
            ("Accept", "text/html"),
            ("set-cookie", "b=2"),
            ("accept", "*/*"),
        ]
    )
    assert headers.get_all("Set-Cookie") == ["a=1, x", "b=2"]
    assert headers.getSetCookie() == ["a=1, x", "b=2"]
    assert headers["ACCEPT"] == "text/html, */*"
    assert headers.get_all("accept") == ["text/html, */*"]
    assert headers.items() == [
        ("accept", "text/html, */*"),
        ("set-cookie", "a=1, x"),
        ("set-cookie", "b=2"),
    ]


def test_what_is_sent_has_every_pair_in_its_order() -> None:
    headers = Headers([("B", "1"), ("a", "2"), ("b", "3")])
    assert headers.raw_items() == [("b", "1"), ("a", "2"), ("b", "3")]


def test_a_name_that_is_not_there_is_none() -> None:
    headers = Headers({"a": "1"})
    assert headers["b"] is None
    assert headers.get("b") is None
    assert headers.get("b", "none") == "none"
    assert headers.get_all("b") is None
    assert "b" not in headers
    assert "A" in headers


def test_setting_replaces_all_of_a_name_in_the_first_ones_place() -> None:
    headers = Headers([("a", "1"), ("b", "2"), ("A", "3")])
    headers.set("a", 4)
    assert headers.raw_items() == [("a", "4"), ("b", "2")]
    headers["c"] = "5"
    headers.delete("B")
    assert dict(headers.items()) == {"a": "4", "c": "5"}


@pytest.mark.parametrize("value", ["a\r\nset-cookie: b", "a\nb", "a\0b"], ids=repr)
def test_a_value_cannot_begin_another_header(value: str) -> None:
    with pytest.raises(ValueError, match="line ends"):
        Headers({"x": value})


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\nb", "é"], ids=repr)
def test_a_name_is_a_name(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a header"):
        Headers({name: "1"})


@pytest.mark.parametrize("value", [None, b"bytes"], ids=repr)
def test_a_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="the value of a header is a str"):
        Headers({"x": value})


def test_a_value_that_http_cannot_write_is_refused() -> None:
    assert Headers({"x": "café"})["x"] == "café"
    with pytest.raises(UnicodeEncodeError):
        Headers({"x": "日本"})
