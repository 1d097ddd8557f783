"""Which entrypoints a module has, and what its handlers are given."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.worker_code import a_worker
from tenantry.workers import patch_env


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "parameters",
    ["self", "self, request", "self, request, env", "self, request, env, ctx", "self, *args"],
)
async def test_a_handler_takes_as_much_as_it_wants(tmp_path: Path, parameters: str) -> None:
    code = f"""
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch({parameters}):
                return Response(self.env.NAME)
    """
    async with a_worker(tmp_path, code, env={"NAME": "Ada"}) as worker:
        assert await (await worker.fetch("/")).text() == "Ada"


@pytest.mark.asyncio
async def test_the_arguments_are_request_env_and_context(tmp_path: Path) -> None:
    code = """
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            def fetch(self, request, env, ctx):
                assert env is self.env and ctx is self.ctx
                return Response(f"{request.method} {request.url} {request.headers['x-a']}")
    """
    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/path?q", method="PUT", headers={"X-A": "1"})
        assert await response.text() == "PUT https://worker.test/path?q 1"


@pytest.mark.asyncio
async def test_a_modules_functions_are_a_worker(tmp_path: Path) -> None:
    code = """
        from workers import Response, handler

        seen = []

        @handler
        async def on_fetch(request, env, ctx):
            return Response(f"{env.NAME} {seen}")

        def on_scheduled(controller):
            seen.append((controller.cron, controller.scheduledTime, controller.type))
    """
    async with a_worker(tmp_path, code, env={"NAME": "Ada"}) as worker:
        await worker.scheduled("0 * * * *", 3_600_000)
        response = await worker.fetch("/")
        assert await response.text() == "Ada [('0 * * * *', 3600000, 'scheduled')]"


DEFAULT = """
    from workers import WorkerEntrypoint
    class Default(WorkerEntrypoint):
        pass
"""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (DEFAULT + "    def on_fetch(request): pass", "Cannot define multiple default entrypoints"),
        ("import workers", "entry is no worker"),
        (
            DEFAULT + "        def fetch(self, request, env, ctx, more): pass",
            "Default.fetch needs 'more'",
        ),
        (DEFAULT + "        def scheduled(self, *, env): pass", "Default.scheduled needs 'env'"),
        (
            DEFAULT + "        def __init__(self, ctx): pass\n        def fetch(self): pass",
            "positional argument",
        ),
    ],
    ids=["class-and-functions", "nothing", "too-many", "by-name", "init"],
)
async def test_what_is_no_worker_is_refused(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        async with a_worker(tmp_path, code) as worker:
            await worker.fetch("/")


@pytest.mark.asyncio
async def test_what_is_no_response_is_named(tmp_path: Path) -> None:
    code = DEFAULT + "        def fetch(self): return {'a': 1}"
    async with a_worker(tmp_path, code) as worker:
        with pytest.raises(TypeError, match="fetch returned a dict, not a Response"):
            await worker.fetch("/")
        with pytest.raises(AttributeError, match="Default has no handler 'scheduled'"):
            await worker.scheduled()
        with pytest.raises(AttributeError, match="no entrypoint 'Admin'"):
            await worker.fetch("/", entrypoint="Admin")


RPC = """
    from workers import Response, WorkerEntrypoint

    class Base(WorkerEntrypoint):
        async def add(self, a, b=1):
            return a + b

    class Default(Base):
        def who(self):
            return {"name": self.env.NAME, "bytes": b"\\0"}

        def _hidden(self):
            return 1

        def pair(self):
            return (1, 2)

        async def fetch(self):
            return Response("hello")

    class Admin(WorkerEntrypoint):
        def fetch(self):
            return Response("admin")
"""


@pytest.mark.asyncio
async def test_public_methods_can_be_called_and_others_cannot(tmp_path: Path) -> None:
    async with a_worker(tmp_path, RPC, env={"NAME": "Ada"}) as worker:
        assert await worker.call("add", 1, b=2) == 3
        assert await worker.call("who") == {"name": "Ada", "bytes": b"\0"}
        for name in ("_hidden", "__init__", "fetch", "ctx", "nothing"):
            with pytest.raises(AttributeError, match="no public method"):
                await worker.call(name)
        with pytest.raises(TypeError, match="what pair returns: a tuple cannot leave a worker"):
            await worker.call("pair")


@pytest.mark.asyncio
async def test_another_class_is_another_entrypoint(tmp_path: Path) -> None:
    async with a_worker(tmp_path, RPC, env={"NAME": "Ada"}) as worker:
        assert await (await worker.fetch("/", entrypoint="Admin")).text() == "admin"
        assert worker.entrypoints == {
            "": ["add", "fetch", "pair", "who"],
            "Base": ["add"],
            "Admin": ["fetch"],
        }


@pytest.mark.asyncio
async def test_a_module_lies_next_to_the_main_one(tmp_path: Path) -> None:
    (tmp_path / "util.py").write_text("NAME = 'util'")
    code = """
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            def fetch(self):
                from util import NAME
                return Response(NAME)
    """
    async with a_worker(tmp_path, code) as worker:
        assert await (await worker.fetch("/")).text() == "util"


@pytest.mark.asyncio
async def test_a_client_that_goes_away_cancels_the_handler(tmp_path: Path) -> None:
    code = """
        import asyncio
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch(self, request):
                self.env.EVENTS.begun()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.ctx.wait_until(self.later(request.signal))

            async def later(self, signal):
                self.env.EVENTS.seen(signal.aborted)
    """
    begun, seen = asyncio.Event(), asyncio.Queue[bool]()
    events = Events(begun, seen)
    async with a_worker(tmp_path, code) as worker:
        with patch_env(EVENTS=events):
            asking = asyncio.create_task(worker.fetch("/"))
            await begun.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert await seen.get() is True


@pytest.mark.asyncio
@pytest.mark.parametrize("instead", ["raise KeyError('late')", "return Response('late')"])
async def test_what_a_cancelled_handler_does_instead_is_heard_by_nobody(
    tmp_path: Path, instead: str
) -> None:
    code = f"""
        import asyncio
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch(self, request):
                self.env.BEGUN()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    {instead}
    """
    begun = asyncio.Event()
    async with a_worker(tmp_path, code) as worker:
        with patch_env(BEGUN=begun.set):
            asking = asyncio.create_task(worker.fetch("/"))
            await begun.wait()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert worker.logs == []


class Events:
    def __init__(self, begun: asyncio.Event, seen: asyncio.Queue[bool]) -> None:
        self.begun = begun.set
        self.seen = seen.put_nowait


@pytest.mark.asyncio
async def test_a_body_that_nobody_reads_to_its_end_is_closed(tmp_path: Path) -> None:
    code = """
        from workers import Response, WorkerEntrypoint
        closed = []

        async def numbers():
            try:
                for number in range(1_000_000):
                    yield f"{number} "
            finally:
                closed.append(number)

        class Default(WorkerEntrypoint):
            def fetch(self, request):
                return Response(str(closed) if "closed" in request.url else numbers())
    """
    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/")
        body = response.body
        assert body is not None
        assert await anext(body) == b"0 "
        await body.aclose()
        (last,) = await (await worker.fetch("/closed")).json()
        # pieces wait for their reader
        assert last <= 3


@pytest.mark.asyncio
async def test_what_fails_in_a_body_is_raised_at_its_reader(tmp_path: Path) -> None:
    code = """
        from workers import Response, WorkerEntrypoint

        async def broken():
            yield b"some"
            raise KeyError("broken")

        class Default(WorkerEntrypoint):
            def fetch(self):
                return Response(broken())
    """
    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/")
        assert response.status == 200
        with pytest.raises(KeyError, match="broken"):
            await response.text()


@pytest.mark.asyncio
async def test_a_request_comes_as_it_is_sent(tmp_path: Path) -> None:
    code = """
        from workers import Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch(self, request):
                return Response((piece.upper() async for piece in request.body))
    """

    async def pieces() -> object:
        yield b"a"
        yield b"b"

    async with a_worker(tmp_path, code) as worker:
        response = await worker.fetch("/", method="POST", body=pieces())  # type: ignore[arg-type]
        assert await response.bytes() == b"AB"
