"""Applications of WSGI as workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.worker_code import a_worker

CODE = """
    import wsgi
    from urllib.parse import parse_qs
    from workers import WorkerEntrypoint

    closed = []

    class Pieces:
        def __init__(self, *pieces):
            self.pieces = iter(pieces)

        def __iter__(self):
            return self.pieces

        def close(self):
            closed.append(1)

    def app(environ, start_response):
        path = environ["PATH_INFO"]
        if path == "/fails":
            raise LookupError("no such page")
        if path == "/nothing":
            return []
        start_response("200 OK", [("content-type", "text/plain"), ("set-cookie", "a=1")])
        if path == "/stream":
            return Pieces(b"", b"one ", b"two")
        if path == "/closed":
            return [str(closed).encode()]
        name = environ["workers.env"].NAME
        query = parse_qs(environ["QUERY_STRING"])
        body = environ["wsgi.input"].read().decode()
        return [f"{environ['REQUEST_METHOD']} {path} {query} {environ['HTTP_X_A']} {body} {name}".encode()]

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await wsgi.fetch(app, request, self.env)
"""


@pytest.mark.asyncio
async def test_an_application_sees_the_request_and_env(tmp_path: Path) -> None:
    async with a_worker(tmp_path, CODE, env={"NAME": "Ada"}) as worker:
        response = await worker.fetch("/a%20b?q=1", method="PUT", headers={"x-a": "2"}, body="body")
        assert await response.text() == "PUT /a b {'q': ['1']} 2 body Ada"
        assert response.headers.getSetCookie() == ["a=1"]


@pytest.mark.asyncio
async def test_a_stream_is_sent_and_closed(tmp_path: Path) -> None:
    async with a_worker(tmp_path, CODE, env={"NAME": "Ada"}) as worker:
        assert await (await worker.fetch("/stream")).text() == "one two"
        body = (await worker.fetch("/stream")).body
        assert body is not None
        assert await anext(body) == b""
        await body.aclose()
        assert await (await worker.fetch("/closed")).text() == "[1, 1]"


@pytest.mark.asyncio
async def test_what_an_application_raises_is_raised(tmp_path: Path) -> None:
    async with a_worker(tmp_path, CODE, env={"NAME": "Ada"}) as worker:
        with pytest.raises(LookupError, match="no such page"):
            await worker.fetch("/fails")
        with pytest.raises(RuntimeError, match="did not call start_response"):
            await worker.fetch("/nothing")


ENVIRON = """
    import json, wsgi
    from workers import WorkerEntrypoint

    NAMES = ("SCRIPT_NAME", "PATH_INFO", "HTTP_CF_CONNECTING_IP", "REMOTE_ADDR")

    def app(environ, start_response):
        start_response("200 OK", [])
        return [json.dumps([environ.get(name) for name in NAMES]).encode()]

    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await wsgi.fetch(app, request, self.env)
"""


@pytest.mark.asyncio
async def test_an_application_at_a_path_is_told_and_no_header_is_taken_for_another(
    tmp_path: Path,
) -> None:
    headers = [
        ("x-forwarded-prefix", "/workers/dev/api"),
        ("cf-connecting-ip", "127.0.0.1"),
        ("cf_connecting_ip", "8.8.8.8"),
    ]
    async with a_worker(tmp_path, ENVIRON) as worker:
        response = await worker.fetch("/a%20b", headers=headers)
        seen = await response.json()
    assert seen == ["/workers/dev/api", "/a b", "127.0.0.1", "127.0.0.1"]
