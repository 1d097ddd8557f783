"""An invocation that its isolate never began goes on in another, and is told of once."""

from __future__ import annotations

import pytest

from support.worker_isolates import (
    FakeIsolate,
    FakeNursery,
    Records,
    a_version,
    an_engine,
    an_invocation,
    ask,
    hello,
)
from tenantry_runtime.workers.engine.engine import MAX_MOVES
from tenantry_runtime.workers.interface import HttpResponse, WorkerFailed
from tenantry_runtime.workers.isolate import Attendant, Ending, EndingKind, NeverBegan
from tenantry_runtime.workers.outcome import Outcome

pytestmark = pytest.mark.asyncio


class Reluctant:
    """A handler that so many isolates give back."""

    def __init__(self, num_isolates: int) -> None:
        self.num_left = num_isolates

    async def handle(self, isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        if not self.num_left:
            return await hello(isolate, attendant)
        self.num_left -= 1
        raise NeverBegan(Ending(EndingKind.LEFT, "held up"))


async def test_what_is_given_back_is_answered_by_whoever_takes_it_and_recorded_once() -> None:
    records = Records()
    version = a_version()
    handler = Reluctant(1)
    async with an_engine(FakeNursery(handler.handle), records=records) as engine:
        assert (await ask(engine, version)).body == b"hello"
        handler.num_left = 1
        await engine.scheduled(version, "* * * * *", 0, an_invocation())
        handler.num_left = 1
        assert await engine.rpc(version, "method", [], {}, an_invocation()) == 200
        assert engine.statistics().num_idle == 1
    assert [record.outcome for record in records.records] == [Outcome.OK] * 3


async def test_what_nobody_begins_is_given_up_by_name() -> None:
    records = Records()
    handler = Reluctant(MAX_MOVES + 1)
    async with an_engine(FakeNursery(handler.handle), records=records) as engine:
        with pytest.raises(WorkerFailed) as raised:
            await ask(engine, a_version())
    assert raised.value.outcome is Outcome.UNRESPONSIVE
    assert [record.outcome for record in records.records] == [Outcome.UNRESPONSIVE]


async def test_an_isolate_that_has_just_ended_is_not_asked_again() -> None:
    nursery, records, version = FakeNursery(), Records(), a_version()
    async with an_engine(nursery, records=records) as engine:
        await ask(engine, version)
        # before anybody has been told
        nursery.loaded[0].ending = Ending(EndingKind.CLOSED, "closed")
        assert (await ask(engine, version)).body == b"hello"
        assert len(nursery.loaded) == 2
    assert [record.outcome for record in records.records] == [Outcome.OK] * 2
