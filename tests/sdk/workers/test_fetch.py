"""Requests that a worker sends, out and to other workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.worker_code import a_worker
from tenantry.workers import Request, Response
from tenantry.workers._host import INLINE_BYTES
from tenantry.workers.testing import FakeFetch, FakeService

ECHO = """
    from workers import Response, fetch

    async def on_fetch(request):
        return await fetch(
            "https://example.com/sub?a=1",
            method=request.method,
            headers=[("X-Number", 123), ("cookie", "a"), ("cookie", "b")],
            body=request.body,
            redirect="manual",
        )
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("num_bytes", [0, 5, INLINE_BYTES, INLINE_BYTES + 1, 1 << 20], ids=str)
async def test_a_request_goes_out_and_its_response_comes_back(
    tmp_path: Path, num_bytes: int
) -> None:
    async def echo(request: Request) -> Response:
        headers = [("set-cookie", "a=1"), ("set-cookie", "b=2")]
        return Response(await request.bytes(), status=201, headers=headers)

    outside = FakeFetch(echo)
    async with a_worker(tmp_path, ECHO, fetch=outside) as worker:
        response = await worker.fetch("/", method="POST", body=b"x" * num_bytes)
        assert await response.bytes() == b"x" * num_bytes
    assert (response.status, response.headers.getSetCookie()) == (201, ["a=1", "b=2"])
    (request,) = outside.requests
    assert (request.method, request.url) == ("POST", "https://example.com/sub?a=1")
    assert request.headers.raw_items()[:3] == [
        ("x-number", "123"),
        ("cookie", "a"),
        ("cookie", "b"),
    ]


@pytest.mark.asyncio
async def test_a_response_that_is_returned_is_not_read_here(tmp_path: Path) -> None:
    pulled: list[int] = []

    def endless(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            while True:
                pulled.append(1)
                yield b"piece"

        return Response(pieces())

    code = """
        from workers import fetch

        async def on_fetch():
            return await fetch("https://example.com/")
    """
    async with a_worker(tmp_path, code, fetch=endless) as worker:
        response = await worker.fetch("/")
        assert pulled == []
        body = response.body
        assert body is not None
        assert await anext(body) == b"piece"
        await body.aclose()


@pytest.mark.asyncio
async def test_a_dict_as_second_argument_is_an_error_that_says_so(tmp_path: Path) -> None:
    code = """
        from workers import Response, fetch

        async def on_fetch():
            try:
                await fetch("https://example.com/", {"headers": {}})
            except TypeError as error:
                return Response(str(error))
    """
    async with a_worker(tmp_path, code) as worker:
        told = await (await worker.fetch("/")).text()
    assert told == "fetch() takes 1 positional argument but 2 were given"


@pytest.mark.asyncio
async def test_without_an_answer_a_test_is_told_what_was_fetched(tmp_path: Path) -> None:
    async with a_worker(tmp_path, ECHO) as worker:
        with pytest.raises(ConnectionError, match=r"POST https://example.com/sub\?a=1"):
            await worker.fetch("/", method="POST", body="x")


@pytest.mark.asyncio
async def test_the_signal_of_a_request_ends_what_is_fetched_for_it(tmp_path: Path) -> None:
    code = """
        from workers import Response, fetch

        async def on_fetch(request):
            await fetch("https://example.com/", signal=request.signal)
    """
    begun, ended = asyncio.Event(), asyncio.Event()

    async def never(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Response("")

    async with a_worker(tmp_path, code, fetch=never) as worker:
        asking = asyncio.create_task(worker.fetch("/"))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert ended.is_set()


CALLER = """
    from workers import Response, env

    async def on_fetch(request):
        if request.url.endswith("/rpc"):
            found = await env.OTHER.find("ada", limit=2)
            return Response.json([found.name, found["limit"]])
        return await env.OTHER.fetch(request)
"""


@pytest.mark.asyncio
async def test_another_worker_answers_requests_and_calls(tmp_path: Path) -> None:
    other_code = """
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            def find(self, name, limit):
                return {"name": name, "limit": limit}

            async def fetch(self, request):
                return Response(f"{request.url} {await request.text()}", status=202)
    """
    (tmp_path / "other").mkdir()
    async with (
        a_worker(tmp_path / "other", other_code) as other,
        a_worker(tmp_path, CALLER, env={"OTHER": other}) as worker,
    ):
        assert await (await worker.fetch("/rpc")).json() == ["ada", 2]
        response = await worker.fetch("https://any.host/path", method="POST", body="body")
        assert (response.status, await response.text()) == (202, "https://any.host/path body")


@pytest.mark.asyncio
async def test_a_fake_service_is_functions(tmp_path: Path) -> None:
    service = FakeService(
        lambda request: Response(f"fake {request.method}"),
        find=lambda name, limit: {"name": name.upper(), "limit": limit},
    )
    async with a_worker(tmp_path, CALLER, env={"OTHER": service}) as worker:
        assert await (await worker.fetch("/rpc")).json() == ["ADA", 2]
        assert await (await worker.fetch("/")).text() == "fake GET"


@pytest.mark.asyncio
@pytest.mark.parametrize("value", ["(1,)", "object()", "{1: 2}", "1 << 64", "lambda: 1"])
async def test_what_cannot_be_sent_is_named(tmp_path: Path, value: str) -> None:
    code = f"""
        from workers import env

        async def on_fetch():
            await env.OTHER.find({value})
    """
    async with a_worker(tmp_path, code, env={"OTHER": FakeService(find=print)}) as worker:
        with pytest.raises(TypeError, match=r"the arguments of OTHER\.find: "):
            await worker.fetch("/")
