"""Calls that an isolate makes: answered, forgotten, and held to what one isolate may have open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import anyio
import msgspec
import pytest

from support.byte_streams import Pieces
from support.guests import Heard, whole
from support.hostile_isolates import FETCH, a_peer, invaded
from tenantry_runtime.workers.frames import (
    Break,
    Call,
    Cancel,
    Credit,
    Data,
    End,
    Fetched,
    Finished,
    Forget,
    Refusal,
    Respond,
    Result,
    Streamed,
)
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallRefused,
    HttpResponse,
    StreamResult,
)
from tenantry_runtime.workers.isolate import IsolateLimits


def answering(answer: object) -> Heard:
    async def call(binding: str, method: str, args: Sequence[object], body: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Heard(call)


class Waiting:
    """Answers calls only when it is cancelled, and counts those."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_cancelled = 0
        self.news = anyio.Event()

    async def __call__(
        self, binding: str, method: str, args: Sequence[object], body: ByteStream | None
    ) -> object:
        self.num_begun += 1
        self._tell()
        try:
            await anyio.sleep_forever()
        finally:
            self.num_cancelled += 1
            self._tell()
        return None

    async def until(self, num_begun: int, num_cancelled: int) -> None:
        while (self.num_begun, self.num_cancelled) != (num_begun, num_cancelled):
            await self.news.wait()

    def _tell(self) -> None:
        self.news.set()
        self.news = anyio.Event()


def a_call(number: int = 1, invocation: int = 0, **fields: object) -> Call:
    return Call(number, invocation, "KV", "get", ["key"], **fields)  # type: ignore[arg-type]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"a": [1, None]}, Result(1, {"a": [1, None]})),
        (CallRefused("TypeError", "no", 5006), Refusal(1, "TypeError", "no", 5006)),
        (
            HttpResponse(status=404, headers=[("x", "y")], body=b"none", url="http://u/"),
            Fetched(1, 404, [("x", "y")], b"none", None, "http://u/"),
        ),
        (StreamResult(stream=Pieces()), Streamed(1, 2, "text/event-stream")),
        (HttpResponse(status=200, body=Pieces()), Fetched(1, 200, [], None, 2)),
        (HttpResponse(status=200, body=bytes(1 << 20)), Fetched(1, 200, [], None, 2)),
    ],
)
async def test_each_answer_has_its_frame(answer: object, expected: object) -> None:
    async with a_peer(answering(answer)) as (_, peer):
        await peer.say(a_call())
        assert await peer.hear() == expected


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [RuntimeError("secret"), object()])
async def test_what_fails_in_the_runtime_says_nothing_and_ends_nothing(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_peer(answering(answer)) as (isolate, peer):
        await peer.say(a_call(1), a_call(2))
        for refusal in await peer.hear_all(2):
            assert isinstance(refusal, Refusal)
            assert refusal.name == "InternalError"
            assert "secret" not in refusal.message
        assert isolate.ending is None
    assert len(caplog.records) == 2


@pytest.mark.asyncio
async def test_a_result_beyond_a_frame_comes_as_a_stream() -> None:
    value = ["x" * 1000] * 2000
    async with a_peer(answering(value)) as (_, peer):
        await peer.say(a_call())
        assert await peer.hear() == Streamed(1, 2, "application/json")
        await peer.say(Credit(2, 4 << 20))
        content = b""
        while isinstance(frame := await peer.hear(), Data):
            content += frame.data
        assert frame == End(2)
        assert msgspec.json.decode(content) == value


@pytest.mark.asyncio
async def test_a_result_beyond_all_bounds_is_refused() -> None:
    limits = IsolateLimits(max_result_bytes=2 << 20)
    async with a_peer(answering("x" * (3 << 20)), limits) as (_, peer):
        await peer.say(a_call())
        refusal = await peer.hear()
        assert isinstance(refusal, Refusal)
        assert "3145" in refusal.message


@pytest.mark.asyncio
async def test_forgetting_a_call_cancels_it_and_it_is_not_answered() -> None:
    waiting = Waiting()
    async with a_peer(Heard(waiting)) as (isolate, peer):
        await peer.say(a_call())
        await waiting.until(1, 0)
        await peer.say(Forget(1), a_call(2))
        await waiting.until(2, 1)
        assert isolate.statistics().num_calls == 1


@pytest.mark.asyncio
async def test_calls_end_with_their_invocation_and_with_the_isolate() -> None:
    waiting = Waiting()
    async with invaded(Heard(waiting)) as at:
        await at.peer.say(a_call(1, FETCH), a_call(2, FETCH))
        await waiting.until(2, 0)
        await at.peer.say(Respond(FETCH, 200, []), Finished(FETCH))
        await waiting.until(2, 2)
        at.fetching.release.set()
    waiting = Waiting()
    async with a_peer(Heard(waiting)) as (_, peer):
        await peer.say(a_call())
        await waiting.until(1, 0)
    assert waiting.num_cancelled == 1


@pytest.mark.asyncio
async def test_calls_beyond_those_that_may_be_open_are_refused() -> None:
    waiting = Waiting()
    async with a_peer(Heard(waiting), IsolateLimits(max_calls=2)) as (isolate, peer):
        await peer.say(a_call(1), a_call(2), a_call(3))
        refusal = await peer.hear()
        assert isinstance(refusal, Refusal)
        assert refusal.call == 3
        await peer.say(Forget(1))
        await waiting.until(2, 1)
        await peer.say(a_call(4))
        await waiting.until(3, 1)
        assert isolate.statistics().num_calls == 2


@pytest.mark.asyncio
async def test_arguments_beyond_those_that_may_be_open_are_refused() -> None:
    waiting = Waiting()
    limits = IsolateLimits(max_call_bytes=1 << 20)
    long = Call(1, 0, "KV", "put", ["key", bytes(600 << 10)])
    async with a_peer(Heard(waiting), limits) as (_, peer):
        await peer.say(long, Call(2, 0, "KV", "put", long.args))
        refusal = await peer.hear()
        assert isinstance(refusal, Refusal)
        assert refusal.call == 2


@pytest.mark.asyncio
async def test_streams_beyond_those_that_may_be_open_are_refused_and_closed() -> None:
    streams = [Pieces(), Pieces()]
    answers = iter(streams)

    async def call(binding: str, method: str, args: Sequence[object], body: object) -> object:
        return StreamResult(stream=next(answers))

    async with a_peer(Heard(call), IsolateLimits(max_streams=1)) as (_, peer):
        await peer.say(a_call(1))
        assert isinstance(await peer.hear(), Streamed)
        await peer.say(a_call(2))
        assert isinstance(await peer.hear(), Refusal)
    assert [stream.is_closed for stream in streams] == [True, True]


@pytest.mark.asyncio
async def test_a_stream_that_is_broken_by_the_isolate_is_closed_and_acknowledged() -> None:
    stream = Pieces(b"x")
    async with a_peer(answering(StreamResult(stream=stream))) as (isolate, peer):
        await peer.say(a_call())
        await peer.hear()
        await peer.say(Break(2))
        assert await peer.hear() == Break(2)
        # crossing the last word on their way
        await peer.say(Credit(2, 100), Break(2), a_call(2))
        assert await peer.hear() == Streamed(2, 4, "text/event-stream")
        assert isolate.ending is None
    assert (stream.num_read, stream.is_closed) == (0, True)


@pytest.mark.asyncio
async def test_a_body_of_a_call_is_refused_when_the_call_has_ended() -> None:
    async with a_peer(answering(None)) as (_, peer):
        await peer.say(a_call(1, body_stream=1), Data(1, b"unread"))
        assert await peer.hear_all(2) == [Result(1, None), Break(1)]
        await peer.say(Data(1, b"was on its way"), Break(1), a_call(2))
        assert await peer.hear() == Result(2, None)


@pytest.mark.asyncio
async def test_a_body_that_breaks_off_refuses_the_call_that_reads_it() -> None:
    async def call(
        binding: str, method: str, args: Sequence[object], body: ByteStream | None
    ) -> object:
        assert body is not None
        return await whole(body)

    async with a_peer(Heard(call)) as (_, peer):
        await peer.say(a_call(1, body_stream=1), Data(1, b"half"), Break(1, "ValueError"))
        assert await peer.hear() == Refusal(1, "Error", "the body broke off: ValueError")


@pytest.mark.asyncio
async def test_a_stream_that_had_ended_when_it_was_handed_on_is_a_broken_body() -> None:
    async with invaded(answering(StreamResult(stream=Pieces(b"x")))) as at:
        await at.peer.say(a_call(1, FETCH))
        await at.peer.hear()
        await at.peer.say(Break(4), Respond(FETCH, 200, [], None, 4))
        response = await at.fetching.answered()
        assert not isinstance(response.body, bytes)
        with pytest.raises(Exception, match="had ended before"):
            await anext(aiter(response.body))
        assert at.isolate.ending is None


@pytest.mark.asyncio
async def test_leaving_a_fetch_tells_the_isolate_once_that_nobody_waits() -> None:
    async with invaded() as at:
        await at.peer.say(Respond(FETCH, 200, [], None, 1))
        await at.fetching.answered()
        at.fetching.release.set()
        assert await at.peer.hear_all(2) == [Break(1), Cancel(FETCH)]
        await at.peer.say(Break(1), Finished(FETCH), a_call(1))
        await at.fetching.heard.has_finished.wait()
        # the body that nobody had read
        assert await at.peer.hear() == Break(2, "its invocation has finished")


@pytest.mark.asyncio
async def test_a_generator_that_is_left_in_its_middle_ends_there() -> None:
    steps: list[str] = []

    class Generated:
        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await anyio.sleep_forever()
            finally:
                steps.append("generator")

        async def aclose(self) -> None:
            steps.append("stream")

    async with a_peer(answering(StreamResult(stream=Generated()))) as (_, peer):
        await peer.say(a_call())
        await peer.hear()
        await peer.say(Credit(2, 100))
        assert await peer.hear() == Data(2, b"one")
        await peer.say(Break(2))
        assert await peer.hear() == Break(2)
    assert steps == ["generator", "stream"]
