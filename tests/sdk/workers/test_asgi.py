"""Applications of ASGI as workers: requests, streams, lifespans, and clients that go away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.worker_code import a_worker
from tenantry.workers import patch_env

HEAD = """
    import asgi, asyncio, contextlib
    from workers import WorkerEntrypoint
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route
"""
TAIL = """
    class Default(WorkerEntrypoint):
        async def fetch(self, request):
            return await asgi.fetch(app, request.js_object, self.env)
"""


@pytest.mark.asyncio
async def test_an_application_sees_the_request_and_env(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    async def show(request):
        return JSONResponse({
            "host": request.url.netloc, "path": request.path_params["path"],
            "raw": request.scope["raw_path"].decode(), "method": request.method,
            "a": request.headers.getlist("x-a"), "body": (await request.body()).decode(),
            "name": request.scope["env"].NAME,
        }, status_code=201, headers={"x-b": "1"})

    app = Starlette(routes=[Route("/{path:path}", show, methods=["GET", "POST"])])
    """
        + TAIL
    )
    async with a_worker(tmp_path, code, env={"NAME": "Ada"}) as worker:
        response = await worker.fetch(
            "/a%20b?q=1", method="POST", headers=[("x-a", "1"), ("x-a", "2")], body="body"
        )
        assert (response.status, response.headers["x-b"]) == (201, "1")
        assert await response.json() == {
            "host": "worker.test",
            "path": "a b",
            "raw": "/a%20b",
            "method": "POST",
            "a": ["1", "2"],
            "body": "body",
            "name": "Ada",
        }
        assert await (await worker.fetch("/")).json()


@pytest.mark.asyncio
async def test_cookies_come_apart(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    async def cookies(request):
        response = Response(status_code=204)
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    app = Starlette(routes=[Route("/", cookies)])
    """
        + TAIL
    )
    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/")
        assert response.status == 204
        assert len(response.headers.getSetCookie()) == 2


@pytest.mark.asyncio
async def test_a_stream_is_sent_at_its_readers_pace(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    made = []

    async def pieces():
        for number in range(1000):
            made.append(number)
            yield f"{number} "

    async def show(request):
        if request.url.path == "/made":
            return JSONResponse(made)
        return StreamingResponse(pieces())

    app = Starlette(routes=[Route("/{path}", show), Route("/", show)])
    """
        + TAIL
    )
    async with a_worker(tmp_path, code) as worker:
        body = (await worker.fetch("/")).body
        assert body is not None
        assert await anext(body) == b"0 "
        assert len(await (await worker.fetch("/made")).json()) <= 5
        assert (await body_text(body)).endswith(" 999 ")


async def body_text(body: object) -> str:
    return b"".join([piece async for piece in body]).decode()  # type: ignore[attr-defined]


@pytest.mark.asyncio
async def test_the_lifespan_is_the_isolates(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    @contextlib.asynccontextmanager
    async def lifespan(app):
        print("started")
        yield {"model": "kimi"}
        print("stopped")

    async def show(request):
        return JSONResponse(request.state.model)

    app = Starlette(routes=[Route("/", show)], lifespan=lifespan)
    """
        + TAIL
    )
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", printed.append)
        async with a_worker(tmp_path, code) as worker:
            responses = await asyncio.gather(*(worker.fetch("/") for _ in range(3)))
            assert [await response.json() for response in responses] == ["kimi"] * 3
            assert printed == ["started"]
        assert printed == ["started", "stopped"]


@pytest.mark.asyncio
async def test_a_start_up_that_fails_is_tried_again(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    tries = []

    @contextlib.asynccontextmanager
    async def lifespan(app):
        tries.append(1)
        if len(tries) == 1:
            raise LookupError("no model")
        yield

    app = Starlette(routes=[Route("/", lambda request: JSONResponse(len(tries)))], lifespan=lifespan)
    """
        + TAIL
    )
    async with a_worker(tmp_path, code) as worker:
        with pytest.raises(RuntimeError, match=r"(?s)start-up failed: .*LookupError: no model"):
            await worker.fetch("/")
        assert await (await worker.fetch("/")).json() == 2


@pytest.mark.asyncio
async def test_background_tasks_go_on_after_the_response(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    async def later(env):
        env.DONE()

    async def show(request):
        task = BackgroundTask(later, request.scope["env"])
        return JSONResponse(1, background=task)

    app = Starlette(routes=[Route("/", show)])
    """
        + TAIL
    )
    done = asyncio.Event()
    async with a_worker(tmp_path, code) as worker:
        with patch_env(DONE=done.set):
            assert await (await worker.fetch("/")).json() == 1
        await worker.settle()
        assert done.is_set()
        assert worker.logs == []


@pytest.mark.asyncio
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_goes_away_is_told_of(tmp_path: Path, is_streamed: bool) -> None:
    code = (
        HEAD
        + """
    async def wait(env):
        env.BEGUN()
        try:
            await asyncio.Event().wait()
        finally:
            env.ENDED()

    async def show(request):
        await wait(request.scope["env"])

    async def stream(request):
        async def pieces():
            yield b"first"
            await wait(request.scope["env"])
        return StreamingResponse(pieces())

    app = Starlette(routes=[Route("/", show), Route("/stream", stream)])
    """
        + TAIL
    )
    begun, ended = asyncio.Event(), asyncio.Event()
    async with a_worker(tmp_path, code) as worker:
        with patch_env(BEGUN=begun.set, ENDED=ended.set):
            if is_streamed:
                body = (await worker.fetch("/stream")).body
                assert body is not None
                assert await anext(body) == b"first"
                await begun.wait()
                await body.aclose()
            else:
                asking = asyncio.create_task(worker.fetch("/"))
                await begun.wait()
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
            await ended.wait()
        await worker.settle()
        assert worker.logs == []


@pytest.mark.asyncio
async def test_what_an_application_raises_is_raised(tmp_path: Path) -> None:
    code = """
        import asgi

        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                raise ValueError("no lifespan here")
            if scope["path"] == "/late":
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": b"a", "more_body": True})
                raise KeyError("late")
            if scope["path"] == "/early":
                raise KeyError("early")

        async def on_fetch(request, env):
            return await asgi.fetch(app, request, env)
    """
    async with a_worker(tmp_path, code) as worker:
        with pytest.raises(KeyError, match="early"):
            await worker.fetch("/early")
        with pytest.raises(RuntimeError, match="returned and did not begin its response"):
            await worker.fetch("/nothing")
        response = await worker.fetch("/late")
        with pytest.raises(KeyError, match="late"):
            await response.text()
        await worker.settle()
        assert worker.logs == []


@pytest.mark.asyncio
async def test_a_request_comes_to_the_application_in_pieces(tmp_path: Path) -> None:
    code = """
        import asgi

        async def app(scope, receive, send):
            received = []
            if scope["type"] == "http":
                while not received or received[-1]["more_body"]:
                    received.append(await receive())
                text = repr([(each["body"], each["more_body"]) for each in received])
                await send({"type": "http.response.start", "status": 200})
                await send({"type": "http.response.body", "body": text.encode()})
                assert (await receive())["type"] == "http.disconnect"

        async def on_fetch(request):
            return await asgi.fetch(app, request)
    """

    async def pieces() -> object:
        yield b"a"
        yield b"b"

    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/", method="POST", body=pieces())  # type: ignore[arg-type]
        assert await response.text() == "[(b'a', True), (b'b', True), (b'', False)]"
        assert await (await worker.fetch("/", method="POST", body="x")).text() == "[(b'x', False)]"
        assert await (await worker.fetch("/")).text() == "[(b'', False)]"


FASTAPI = """
    import asgi
    from fastapi import FastAPI, Request
    from workers import WorkerEntrypoint

    app = FastAPI()

    @app.get("/items/")
    async def items(request: Request):
        return {"url": str(request.url), "self": str(request.url_for("items"))}
"""


@pytest.mark.asyncio
async def test_an_application_at_a_path_links_and_redirects_to_it(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    prefix = {"x-forwarded-prefix": "/workers/dev/api"}
    async with a_worker(tmp_path, FASTAPI + TAIL) as worker:
        docs = await (await worker.fetch("/docs", headers=prefix)).text()
        schema = await worker.fetch("/openapi.json", headers=prefix)
        near = await worker.fetch("/items?a=1", headers=prefix)
        found = await (await worker.fetch("/items/", headers=prefix)).json()
        at_root = await (await worker.fetch("/items/")).json()

    assert "'/workers/dev/api/openapi.json'" in docs
    assert (await schema.json())["servers"] == [{"url": "/workers/dev/api"}]
    assert near.status == 307
    location = near.headers["location"]
    assert location is not None
    assert location.endswith("//worker.test/workers/dev/api/items/?a=1")
    assert found["url"].endswith("//worker.test/workers/dev/api/items/")
    assert found["self"] == found["url"]
    assert at_root["url"].endswith("//worker.test/items/")


@pytest.mark.asyncio
@pytest.mark.parametrize("prefix", ["evil", "//evil.example", "/a/", "/a b", "/a?b", "/../x", "/"])
async def test_what_is_no_prefix_is_none(tmp_path: Path, prefix: str) -> None:
    code = (
        HEAD
        + """
    async def show(request):
        return JSONResponse([request.scope["root_path"], request.scope["path"]])

    app = Starlette(routes=[Route("/{path:path}", show)])
    """
        + TAIL
    )
    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/x", headers={"x-forwarded-prefix": prefix})
        assert await response.json() == ["", "/x"]


@pytest.mark.asyncio
async def test_a_response_that_has_no_body_may_come_in_pieces(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware

    class Streaming(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            return await call_next(request)

    async def empty(request):
        async def pieces():
            yield b"a"
            if request.url.path == "/broken":
                raise ValueError("in the middle")
        return StreamingResponse(pieces(), status_code=204, headers={"x-a": "1"})

    async def none(request):
        return Response(status_code=304)

    routes = [Route("/none", none), Route("/{path}", empty)]
    app = Starlette(routes=routes, middleware=[Middleware(Streaming)])
    """
        + TAIL
    )
    async with a_worker(tmp_path, code) as worker:
        for path, status in (("/none", 304), ("/empty", 204), ("/broken", 204)):
            response = await worker.fetch(path)
            assert (response.status, await response.text()) == (status, "")
