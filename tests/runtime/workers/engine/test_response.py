"""A response's body is limited, breaks off by name, and whoever leaves it early is told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from support.worker_isolates import (
    A_REQUEST,
    FakeIsolate,
    FakeNursery,
    Records,
    a_version,
    an_engine,
    an_invocation,
)
from tenantry_runtime.workers.engine.engine import WorkerEngine
from tenantry_runtime.workers.interface import ByteStream, HttpResponse, WorkerFailed
from tenantry_runtime.workers.isolate import Attendant, InvocationFailed
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.spec import WorkerLimits, WorkerVersion

pytestmark = pytest.mark.asyncio


class Body:
    """Pieces, and then what a test wants."""

    def __init__(self, num_pieces: int = 3, error: Exception | None = None) -> None:
        self._num_pieces = num_pieces
        self._error = error
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._num_pieces):
            await anyio.lowlevel.checkpoint()
            yield b"12345"
        if self._error is not None:
            raise self._error

    async def aclose(self) -> None:
        self.is_closed = True


def responding(body: ByteStream) -> FakeNursery:
    async def handler(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        return HttpResponse(status=200, body=body)

    return FakeNursery(handler)


async def read(engine: WorkerEngine, version: WorkerVersion) -> bytes:
    async with engine.fetch(version, A_REQUEST, an_invocation()) as response:
        assert not isinstance(response.body, bytes)
        return b"".join([piece async for piece in response.body])


async def test_a_body_that_ends_is_a_response_that_is_whole() -> None:
    records, version = Records(), a_version()
    async with an_engine(responding(Body()), records=records) as engine:
        assert await read(engine, version) == b"123451234512345"
    assert records.records[0].outcome is Outcome.OK


async def test_a_body_over_the_limit_breaks_off_and_its_invocation_is_stopped() -> None:
    nursery, records = responding(Body(num_pieces=10)), Records()
    version = a_version(limits=WorkerLimits(response_bytes=12))
    async with an_engine(nursery, records=records) as engine:
        with pytest.raises(WorkerFailed) as raised:
            await read(engine, version)
        assert len(nursery.loaded[0].stopped) == 1
    assert raised.value.outcome is Outcome.RESPONSE_TOO_LARGE
    assert records.records[0].outcome is Outcome.RESPONSE_TOO_LARGE


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InvocationFailed("ValueError", "bad"), "ValueError: bad"),
        (OSError("secret"), "the stream that the response passes on broke off (OSError)"),
    ],
)
async def test_a_body_that_breaks_off_says_why_and_no_more(error: Exception, message: str) -> None:
    records, version = Records(), a_version()
    async with an_engine(responding(Body(error=error)), records=records) as engine:
        with pytest.raises(WorkerFailed) as raised:
            await read(engine, version)
    assert (raised.value.outcome, raised.value.message) == (Outcome.EXCEPTION, message)
    assert records.records[0].outcome is Outcome.EXCEPTION


@pytest.mark.parametrize("is_read", [False, True])
async def test_what_is_wrong_with_a_response_is_in_the_log_of_its_invocation(
    is_read: bool,
) -> None:
    records = Records()
    async with an_engine(responding(Body()), records=records) as engine:
        with pytest.raises(WorkerFailed):
            async with engine.fetch(a_version(), A_REQUEST, an_invocation()) as response:
                assert not isinstance(response.body, bytes)
                if is_read:
                    async for _ in response.body:
                        pass
                raise WorkerFailed(Outcome.EXCEPTION, "declared 2 bytes and had 15")
    [record] = records.records
    assert record.outcome is Outcome.EXCEPTION
    assert [error.message for error in record.errors] == ["declared 2 bytes and had 15"]


async def test_whoever_leaves_before_the_end_of_a_body_has_canceled() -> None:
    records, version = Records(), a_version()
    async with (
        an_engine(responding(Body()), records=records) as engine,
        engine.fetch(version, A_REQUEST, an_invocation()) as response,
    ):
        assert not isinstance(response.body, bytes)
        async for _ in response.body:
            break
    assert records.records[0].outcome is Outcome.CANCELED


async def test_a_body_that_nobody_wants_is_no_loss() -> None:
    body, records, version = Body(), Records(), a_version()
    async with (
        an_engine(responding(body), records=records) as engine,
        engine.fetch(version, A_REQUEST, an_invocation()) as response,
    ):
        assert not isinstance(response.body, bytes)
        await response.body.aclose()
    assert body.is_closed
    assert records.records[0].outcome is Outcome.OK


async def test_a_stream_that_passes_the_isolate_by_ends_with_the_invocation_s_time() -> None:
    async def finishes(isolate: FakeIsolate, attendant: Attendant) -> HttpResponse:
        attendant.finished()
        return HttpResponse(status=200, body=Body(num_pieces=10**9))

    records = Records()
    version = a_version(limits=WorkerLimits(wall_s=0.02))
    async with an_engine(FakeNursery(finishes), records=records) as engine:
        with pytest.raises(WorkerFailed) as raised:
            await read(engine, version)
    assert raised.value.outcome is Outcome.EXCEEDED_WALL
    assert records.records[0].outcome is Outcome.EXCEEDED_WALL
