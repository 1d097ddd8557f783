"""A request at an application of this process: its pieces, its reader's pace, and its ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from tenantry_runtime.edge.exchange import MAX_WAITING_BYTES, Exchange
from tenantry_runtime.errors import GenerationFailed, InvalidInput, NodeUnavailable

PATIENCE_S = 30.0


def start(status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"x-one", b"caf\xe9")]}


def piece(content: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


class App:
    """Does what a test says, and remembers how it ended."""

    def __init__(self, work: Callable[[Receive, Send], Awaitable[None]]) -> None:
        self.ended = anyio.Event()
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._work(receive, send)
        finally:
            self.ended.set()


@asynccontextmanager
async def an_exchange(app: App, body: bytes = b"") -> AsyncIterator[Exchange]:
    async with anyio.create_task_group() as tasks:
        exchange = Exchange(app, {"type": "http"}, body)
        tasks.start_soon(exchange.run)
        yield exchange
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
async def test_the_application_gets_the_body_and_the_reader_the_answer() -> None:
    async def echo(receive: Receive, send: Send) -> None:
        message = await receive()
        await send(start(201))
        await send(piece(message["body"]))
        await send(piece(b"!", more=False))

    async with an_exchange(App(echo), b"hello") as exchange:
        await exchange.begun()
        assert (exchange.status, exchange.headers) == (201, [("x-one", "café")])
        assert await exchange.read() == b"hello!"


@pytest.mark.asyncio
async def test_a_piece_comes_when_it_is_sent() -> None:
    goes_on = anyio.Event()

    async def work(_: Receive, send: Send) -> None:
        await send(start())
        await send(piece(b"first"))
        await goes_on.wait()
        await send(piece(b"second", more=False))

    async with an_exchange(App(work)) as exchange:
        await exchange.begun()
        with anyio.fail_after(PATIENCE_S):
            assert await anext(exchange) == b"first"
        goes_on.set()
        assert await exchange.read() == b"second"


@pytest.mark.asyncio
async def test_what_is_sent_faster_than_it_is_read_comes_in_one_piece() -> None:
    async def work(_: Receive, send: Send) -> None:
        await send(start())
        for at in range(100):
            await send(piece(b"%02d" % at))
        await send(piece(b"", more=False))

    async with an_exchange(App(work)) as exchange:
        await exchange.begun()
        assert [each async for each in exchange] == [b"".join(b"%02d" % at for at in range(100))]


@pytest.mark.asyncio
async def test_an_application_waits_while_too_much_is_unread() -> None:
    sent = []

    async def work(_: Receive, send: Send) -> None:
        await send(start())
        for _number in range(8):
            await send(piece(bytes(MAX_WAITING_BYTES // 2)))
            sent.append(MAX_WAITING_BYTES // 2)
        await send(piece(b"", more=False))

    async with an_exchange(App(work)) as exchange:
        await exchange.begun()
        await anyio.wait_all_tasks_blocked()
        assert sum(sent) < MAX_WAITING_BYTES
        assert len(await anext(exchange)) == MAX_WAITING_BYTES
        await anyio.wait_all_tasks_blocked()
        assert sum(sent) < 2 * MAX_WAITING_BYTES
        assert len(await exchange.read()) == 3 * MAX_WAITING_BYTES


@pytest.mark.asyncio
async def test_a_reader_that_leaves_is_a_client_that_has_gone() -> None:
    heard: list[str] = []

    async def work(receive: Receive, send: Send) -> None:
        await receive()
        await send(start())
        # waits for room, which nobody makes
        await send(piece(bytes(MAX_WAITING_BYTES)))
        heard.append((await receive())["type"])
        # lost, and no error
        await send(piece(b"more"))

    app = App(work)
    async with an_exchange(app) as exchange:
        await exchange.begun()
        assert heard == []
        await exchange.aclose()
        with anyio.fail_after(PATIENCE_S):
            await app.ended.wait()
        assert heard == ["http.disconnect"]


@pytest.mark.asyncio
async def test_an_error_on_purpose_is_raised_and_a_defect_is_an_internal_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def refuse(*_: object) -> None:
        raise InvalidInput("field", "problem")

    async def defect(*_: object) -> None:
        raise ZeroDivisionError

    async with an_exchange(App(refuse)) as exchange:
        with pytest.raises(InvalidInput, match="problem"):
            await exchange.begun()
    async with an_exchange(App(defect)) as exchange:
        with pytest.raises(GenerationFailed, match="internal error"):
            await exchange.begun()
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.asyncio
async def test_a_response_that_breaks_off_is_no_whole_one() -> None:
    async def work(_: Receive, send: Send) -> None:
        await send(start())
        await send(piece(b"half"))

    async with an_exchange(App(work)) as exchange:
        await exchange.begun()
        assert await anext(exchange) == b"half"
        with pytest.raises(NodeUnavailable):
            await anext(exchange)
