"""`Request`, as Cloudflare's documentation and tests say that it behaves."""

from __future__ import annotations

from http import HTTPMethod
from typing import Any

import pytest

from tenantry.workers import AbortController, FormData, Request


def test_it_shows_what_it_is() -> None:
    request = Request("https://test.com", method=HTTPMethod.POST)
    assert request.method == HTTPMethod.POST
    assert request.method == "POST"
    assert repr(request) == "Request(method='POST', url='https://test.com/')"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("https://Test.com", "https://test.com/"),
        ("HTTPS://test.com?q=1", "https://test.com/?q=1"),
        ("https://test.com#a", "https://test.com/#a"),
        ("http://test.com:81/A/b?c=D", "http://test.com:81/A/b?c=D"),
    ],
)
def test_a_url_has_a_path(given: str, url: str) -> None:
    assert Request(given).url == url


@pytest.mark.parametrize(
    "url", ["", "/path", "test.com", "ftp://test.com/", "https://", "file:///a"]
)
def test_a_url_is_absolute(url: str) -> None:
    with pytest.raises(ValueError, match="no absolute URL"):
        Request(url)


def test_a_method_is_a_method_of_any_name() -> None:
    assert Request("https://a.b/", method="propfind").method == "PROPFIND"
    with pytest.raises(TypeError, match="no HTTP method"):
        Request("https://a.b/", method="A B")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_has_no_body_is_given_none(method: str) -> None:
    with pytest.raises(TypeError, match="cannot have a body"):
        Request("https://a.b/", method=method, body="x")


@pytest.mark.asyncio
async def test_a_body_is_read_once() -> None:
    request = Request("https://a.b/", method="POST", body='{"field": 42}')
    assert (await request.json())["field"] == 42
    with pytest.raises(OSError, match=r"^Body already used$"):
        await request.text()
    with pytest.raises(OSError, match=r"^Body already used$"):
        request.clone()


@pytest.mark.asyncio
async def test_a_request_of_a_request_takes_its_body_over() -> None:
    first = Request("https://a.b/", method="PUT", body="x", headers={"a": "1"})
    second = Request(first, headers={"b": "2"})
    assert (second.method, second.url, second.headers["a"], second.headers["b"]) == (
        "PUT",
        "https://a.b/",
        None,
        "2",
    )
    assert await second.text() == "x"
    with pytest.raises(OSError, match="Body already used"):
        await first.text()


@pytest.mark.asyncio
async def test_it_is_read_as_what_it_is() -> None:
    def request(body: Any, **headers: str) -> Request:
        return Request("https://a.b/", method="POST", body=body, headers=headers)

    assert await (await request("foobar").blob()).text() == "foobar"
    assert (await request(b"\1\2").buffer()).to_bytes() == b"\1\2"
    assert (await request(FormData({"foobar": 123})).form_data())["foobar"] == "123"
    assert await Request("https://a.b/").bytes() == b""


def test_an_option_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'heders'"):
        Request("https://a.b/", heders={})  # type: ignore[call-arg]


def test_a_signal_goes_along_with_its_request() -> None:
    controller = AbortController()
    request = Request("https://a.b/", signal=controller.signal)
    controller.abort(KeyError("gone"))
    assert [Request(request).signal.aborted, request.clone().signal.aborted] == [True, True]
    with pytest.raises(KeyError, match="gone"):
        request.signal.throw_if_aborted()
    assert not Request("https://a.b/").signal.aborted


def test_what_cloudflares_network_is_told_is_taken() -> None:
    request = Request("https://a.b/", cf={"colo": "DFW"})
    assert request.cf is not None
    assert request.cf.colo == "DFW"
    assert Request("https://a.b/").cf is None


def test_a_clone_is_sent_as_the_request_is() -> None:
    request = Request("https://example.com/", redirect="manual", cf={"cacheTtl": 5})
    assert (request.clone().redirect, request.clone().cf) == ("manual", {"cacheTtl": 5})
