from __future__ import annotations

import anyio
import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from tenantry_runtime.edge.presence import while_there
from tenantry_runtime.errors import GenerationFailed


class Client:
    def __init__(self) -> None:
        self.leaves = anyio.Event()

    async def receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}


@pytest.mark.asyncio
async def test_the_result_of_the_work_comes_out() -> None:
    async def work() -> int:
        return 42

    assert await while_there(Client().receive, work) == 42


@pytest.mark.asyncio
async def test_the_work_is_cancelled_when_the_client_leaves() -> None:
    client, is_cancelled = Client(), False

    async def work() -> None:
        nonlocal is_cancelled
        client.leaves.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            is_cancelled = True
            raise

    with pytest.raises(ClientDisconnect):
        await while_there(client.receive, work)

    assert is_cancelled


@pytest.mark.asyncio
async def test_an_error_of_the_work_comes_out_as_it_is() -> None:
    error = GenerationFailed("x")

    async def work() -> None:
        raise error

    with pytest.raises(GenerationFailed) as caught:
        await while_there(Client().receive, work)

    assert caught.value is error


@pytest.mark.asyncio
async def test_what_runs_beside_ends_with_the_work() -> None:
    has_ended = anyio.Event()

    async def beside() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            has_ended.set()

    async def work() -> None:
        await anyio.wait_all_tasks_blocked()

    await while_there(Client().receive, work, beside=beside)

    assert has_ended.is_set()


@pytest.mark.asyncio
async def test_what_runs_beside_may_find_the_client_gone() -> None:
    async def beside() -> None:
        raise ClientDisconnect

    with pytest.raises(ClientDisconnect):
        await while_there(Client().receive, anyio.sleep_forever, beside=beside)


@pytest.mark.asyncio
async def test_a_cancellation_from_outside_is_no_departure() -> None:
    with anyio.CancelScope() as scope:

        async def work() -> None:
            scope.cancel()
            await anyio.sleep_forever()

        await while_there(Client().receive, work)

    assert scope.cancelled_caught
