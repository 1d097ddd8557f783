"""One connection of an edge, with a call that a test holds in its hand."""

from __future__ import annotations

from typing import Any, cast

import anyio
import grpc
import pytest
from msgspec.structs import replace

from support.fake_node import PATIENCE_S, a_submit
from tenantry_runtime.errors import NodeLost
from tenantry_runtime.pool.connection import MAX_UNSENT_BYTES, Connection
from tenantry_runtime.pool.frames import FrameJoiner
from tenantry_runtime.pool.liveness import Liveness
from tenantry_runtime.pool.messages import (
    SERVICE_EXCHANGE_VERSION,
    Cancel,
    NodeDescription,
    ServedElsewhere,
    ServiceReport,
)
from tenantry_runtime.pool.wire import PackedSubmit, WorkMessage, decode_work


class HeldCall:
    """A Work call that keeps what it is told, until it has heard so many messages."""

    def __init__(self, num_messages: int) -> None:
        self.heard: list[WorkMessage] = []
        self._num_messages = num_messages
        self._joiner = FrameJoiner()
        self._is_full = anyio.Event()

    def unary_unary(self, _name: str) -> None:
        """It is its own channel."""

    async def write(self, frame: bytes) -> None:
        message = self._joiner.add(frame)
        if message is not None:
            self.heard.append(decode_work(message))
        if len(self.heard) == self._num_messages:
            self._is_full.set()

    async def read(self) -> Any:
        await self._is_full.wait()
        return grpc.aio.EOF


@pytest.mark.asyncio
async def test_what_is_given_up_before_it_was_sent_is_not_sent() -> None:
    call = HeldCall(num_messages=2)
    description = NodeDescription(version=1, incarnation=7, members=())
    connection = Connection(address="x", channel=call, call=call, description=description)
    # so long that the next has to wait
    long = replace(a_submit("first"), token_ids=[0] * (MAX_UNSENT_BYTES // 4 + 1))

    async def run(request_id: str) -> None:
        submit = long if request_id == "first" else a_submit(request_id)
        async with connection.sequence(submit) as sequence:
            with pytest.raises(NodeLost):
                await anext(sequence)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "first")
            tasks.start_soon(run, "second")
            await anyio.wait_all_tasks_blocked()
            connection.give_up()
            await connection.run(Liveness())

    submitted = [each.request_id for each in call.heard if isinstance(each, PackedSubmit)]
    cancelled = [each.request_id for each in call.heard if isinstance(each, Cancel)]
    assert submitted == cancelled == [cast(PackedSubmit, call.heard[0]).request_id]


SERVED = ServedElsewhere(
    incarnation=3,
    report=ServiceReport(model="m", phases=("prefill", "decode"), number=1, accounts=()),
)


@pytest.mark.asyncio
@pytest.mark.parametrize("is_new_enough", [True, False])
async def test_a_node_is_told_of_others_if_it_is_new_enough_to_know(is_new_enough: bool) -> None:
    call = HeldCall(num_messages=1 + is_new_enough)
    version = SERVICE_EXCHANGE_VERSION if is_new_enough else SERVICE_EXCHANGE_VERSION - 1
    description = NodeDescription(version=version, incarnation=7, members=())
    connection = Connection(address="x", channel=call, call=call, description=description)

    connection.pass_on(SERVED)
    async with connection.sequence(a_submit()):
        with anyio.fail_after(PATIENCE_S):
            await connection.run(Liveness())

    assert [isinstance(each, PackedSubmit) for each in call.heard][-1]
    assert [each for each in call.heard if each == SERVED] == [SERVED] * is_new_enough


@pytest.mark.asyncio
async def test_a_node_that_does_not_read_is_not_told_of_others() -> None:
    call = HeldCall(num_messages=1)
    description = NodeDescription(version=SERVICE_EXCHANGE_VERSION, incarnation=7, members=())
    connection = Connection(address="x", channel=call, call=call, description=description)
    long = replace(a_submit("first"), token_ids=[0] * (MAX_UNSENT_BYTES // 4 + 1))

    async with connection.sequence(long):
        connection.pass_on(SERVED)
        with anyio.fail_after(PATIENCE_S):
            await connection.run(Liveness())

    assert [isinstance(each, PackedSubmit) for each in call.heard] == [True]
