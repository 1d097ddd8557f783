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
from tenantry_runtime.pool.messages import Cancel, NodeDescription
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
