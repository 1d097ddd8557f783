"""A client's departure is listened for only where a request is not over soon."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from starlette.types import Message

from tenantry_runtime.edge.worker_routes.departure import Departure, Departures


class Client:
    """What it does next is what the test says."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.next: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def receive(self) -> asyncio.Future[Message]:
        self.asked.set()
        return self.next

    def leave(self) -> None:
        self.next.set_result({"type": "http.disconnect"})


@pytest.mark.asyncio
async def test_one_that_leaves_early_or_late_ends_what_is_not_over() -> None:
    async with anyio.create_task_group() as tasks:
        departures = Departures()
        for is_early in (True, False):
            client = Client()
            departure = Departure(client.receive, tasks, departures)
            departure.cancels = scope = anyio.CancelScope()
            departure.arm()
            assert not client.asked.is_set()
            if is_early:
                client.leave()
            with scope, anyio.fail_after(10):
                await client.asked.wait()
                if not is_early:
                    client.leave()
                await anyio.sleep_forever()
            assert (scope.cancelled_caught, departure.is_known) == (True, True)


@pytest.mark.asyncio
async def test_nobody_listens_for_the_client_of_what_is_over() -> None:
    async with anyio.create_task_group() as tasks:
        departures = Departures()
        clients = [Client(), Client()]
        first, second = [Departure(each.receive, tasks, departures) for each in clients]
        first.arm()
        second.arm()
        first.over()
        with anyio.fail_after(10):
            await clients[1].asked.wait()
        assert not clients[0].asked.is_set()
