"""Bodies in pieces, both ways: at their receiver's pace, or past the isolate altogether."""

from __future__ import annotations

import pytest

from support.byte_streams import Pieces
from support.guests import Guests, Heard, a_request, a_worker, an_invocation, fetched, whole
from tenantry_runtime.workers.frames import INITIAL_CREDIT, MAX_DATA_BYTES
from tenantry_runtime.workers.interface import (
    ByteStream,
    CallRefused,
    HttpResponse,
    StreamResult,
)
from tenantry_runtime.workers.isolate import InvocationFailed
from tenantry_runtime.workers.spec import AiBinding, KvBinding

AI = (AiBinding(name="AI"),)
HEAD = "import asyncio\nfrom workers import Response, WorkerEntrypoint, fetch as fetch_url\n"
ECHO = HEAD + (
    "class Default(WorkerEntrypoint):\n"
    "  async def fetch(self, request):\n"
    "    if request.url.endswith('/handed'): return Response(request.body)\n"
    "    return Response(await request.bytes())\n"
)
LONG = bytes(range(256)) * 8192  # 2 MiB, many times the credit


@pytest.mark.asyncio
@pytest.mark.parametrize("body", [b"", b"x", LONG])
async def test_a_body_comes_back_as_it_went(guests: Guests, body: bytes) -> None:
    async with (
        a_worker(guests, ECHO) as isolate,
        isolate.fetch(a_request("/", body), an_invocation(), Heard()) as response,
    ):
        assert await whole(response.body) == body


@pytest.mark.asyncio
async def test_a_streamed_body_comes_whole(guests: Guests) -> None:
    pieces = Pieces(*[b"%06d" % n for n in range(1000)])
    async with (
        a_worker(guests, ECHO) as isolate,
        isolate.fetch(a_request("/", pieces), an_invocation(), Heard()) as response,
    ):
        assert await whole(response.body) == b"".join(b"%06d" % n for n in range(1000))
    assert pieces.is_closed


@pytest.mark.asyncio
async def test_a_request_body_that_is_handed_back_never_enters_the_isolate(guests: Guests) -> None:
    pieces = Pieces(LONG)
    async with a_worker(guests, ECHO) as isolate:
        async with isolate.fetch(
            a_request("/handed", pieces), an_invocation(), Heard()
        ) as response:
            assert pieces.num_read == 0
            assert await whole(response.body) == LONG
        assert pieces.is_closed
        assert isolate.statistics().num_bytes < 1024


@pytest.mark.asyncio
async def test_a_body_that_nobody_reads_is_made_no_further_than_its_credit(guests: Guests) -> None:
    code = HEAD + (
        "made = 0\n"
        "async def pieces():\n"
        "  global made\n"
        "  while True:\n"
        f"    made += {MAX_DATA_BYTES}\n"
        f"    yield bytes({MAX_DATA_BYTES})\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request): return Response(pieces())\n"
        "  async def num_made(self): return made\n"
    )
    async with (
        a_worker(guests, code) as isolate,
        isolate.fetch(a_request(), an_invocation(), Heard()) as response,
    ):
        # an answer comes behind what the body has sent until then, so that two come behind its stop
        await isolate.rpc("num_made", [], {}, an_invocation(), Heard())
        num_made = await isolate.rpc("num_made", [], {}, an_invocation(), Heard())
        # one piece more waits for credit
        assert num_made == INITIAL_CREDIT + MAX_DATA_BYTES
        assert isolate.statistics().num_bytes < INITIAL_CREDIT + 2048
        assert not isinstance(response.body, bytes)
        await anext(aiter(response.body))


def an_ai(answer: object) -> Heard:
    async def call(
        binding: str, method: str, args: list[object], body: ByteStream | None
    ) -> object:
        assert (binding, method) == ("AI", "run")
        return answer

    return Heard(call)


PASSED = HEAD + (
    "class Default(WorkerEntrypoint):\n"
    "  async def fetch(self, request):\n"
    "    events = await self.env.AI.run('@cf/m', {'prompt': 'hi', 'stream': True})\n"
    "    if request.url.endswith('/passed'): return Response(events)\n"
    "    if request.url.endswith('/dropped'): return Response('none')\n"
    "    if request.url.endswith('/begun'): print(await anext(events))\n"
    "    async def upper():\n"
    "      async for event in events: yield event.upper()\n"
    "    return Response(upper())\n"
)


@pytest.mark.asyncio
async def test_an_ai_stream_that_is_handed_on_is_the_bindings_own(guests: Guests) -> None:
    events = Pieces(b"data: a\n\n", b"data: b\n\n")
    async with a_worker(guests, PASSED, bindings=AI) as isolate:
        heard = an_ai(StreamResult(stream=events))
        async with isolate.fetch(a_request("/passed"), an_invocation(), heard) as response:
            assert response.body is events
            # nothing of the invocation runs in the isolate, while its body is on its way
            await heard.has_finished.wait()
            assert not events.is_closed
        assert events.is_closed


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "expected"), [("/", b"AB"), ("/begun", b"B")])
async def test_an_ai_stream_can_be_read_by_the_worker(
    guests: Guests, path: str, expected: bytes
) -> None:
    events = Pieces(b"a", b"b")
    async with a_worker(guests, PASSED, bindings=AI) as isolate:
        assert await fetched(isolate, path, an_ai(StreamResult(stream=events))) == expected
    assert events.is_closed


@pytest.mark.asyncio
async def test_an_ai_stream_that_is_not_read_is_closed_with_its_invocation(guests: Guests) -> None:
    events = Pieces(b"a")
    async with a_worker(guests, PASSED, bindings=AI) as isolate:
        assert await fetched(isolate, "/dropped", an_ai(StreamResult(stream=events))) == b"none"
    assert (events.num_read, events.is_closed) == (0, True)


@pytest.mark.asyncio
async def test_a_stream_that_breaks_raises_where_it_is_read(guests: Guests) -> None:
    events = Pieces(b"a", error=ConnectionError("the node is gone"))
    async with a_worker(guests, PASSED, bindings=AI) as isolate:
        with pytest.raises(InvocationFailed) as raised:
            await fetched(isolate, "/", an_ai(StreamResult(stream=events)))
    assert (raised.value.name, raised.value.message) == ("ConnectionError", "the node is gone")


@pytest.mark.asyncio
async def test_a_body_that_raises_breaks_the_response(guests: Guests) -> None:
    code = HEAD + (
        "async def pieces():\n"
        "  yield b'one'\n"
        "  raise ValueError('no two')\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request): return Response(pieces())\n"
    )
    heard, got = Heard(), b""
    async with a_worker(guests, code) as isolate:
        with pytest.raises(InvocationFailed, match="no two"):
            async with isolate.fetch(a_request(), an_invocation(), heard) as response:
                assert not isinstance(response.body, bytes)
                async for piece in response.body:
                    got += piece
        await heard.has_finished.wait()
    assert got == b"one"
    assert [error.name for error in heard.errors] == ["ValueError"]


@pytest.mark.asyncio
async def test_a_call_takes_a_body_that_the_worker_makes(guests: Guests) -> None:
    code = HEAD + (
        "async def pieces():\n"
        f"  for n in range(20): yield bytes([n]) * {MAX_DATA_BYTES}\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    answer = await fetch_url('https://example.com/', method='POST', body=pieces())\n"
        "    return Response(await answer.text(), status=answer.status)\n"
    )
    received = b""

    async def call(binding: str, method: str, args: list[object], body: ByteStream) -> object:
        nonlocal received
        received = await whole(body)
        return HttpResponse(status=201, body=b"stored")

    async with (
        a_worker(guests, code) as isolate,
        isolate.fetch(a_request(), an_invocation(), Heard(call)) as response,
    ):
        assert (response.status, response.body) == (201, b"stored")
    assert received == b"".join(bytes([n]) * MAX_DATA_BYTES for n in range(20))


@pytest.mark.asyncio
async def test_a_request_body_that_is_sent_on_never_enters_the_isolate(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    return await fetch_url('https://example.com/', method='POST', body=request.body)\n"
    )
    sent = Pieces(LONG)

    async def call(binding: str, method: str, args: list[object], body: ByteStream) -> object:
        assert body is sent
        return HttpResponse(status=200, body=body)

    async with a_worker(guests, code) as isolate:
        request = a_request("/", sent)
        async with isolate.fetch(request, an_invocation(), Heard(call)) as response:
            assert await whole(response.body) == LONG
        assert sent.is_closed
        assert isolate.statistics().num_bytes < 1024


@pytest.mark.asyncio
async def test_a_response_can_come_before_the_body_that_it_answers_has_ended(
    guests: Guests,
) -> None:
    code = HEAD + (
        "go = asyncio.Event()\n"
        "async def pieces():\n"
        "  yield b'first'\n"
        "  await go.wait()\n"
        "  yield b'second'\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    answer = await fetch_url('https://example.com/', method='POST', body=pieces())\n"
        "    go.set()\n"
        "    return Response(answer.body)\n"
    )

    async def call(binding: str, method: str, args: list[object], body: ByteStream) -> object:
        return HttpResponse(status=200, body=body)

    async with a_worker(guests, code) as isolate:
        assert await fetched(isolate, heard=Heard(call)) == b"firstsecond"


KV = HEAD + (
    "class Default(WorkerEntrypoint):\n"
    "  async def fetch(self, request):\n"
    "    try:\n"
    "      value = await self.env.KV.get('key')\n"
    "    except Exception as error:\n"
    "      return Response(f'{type(error).__name__}: {error}')\n"
    "    return Response(str(len(value)))\n"
)


@pytest.mark.asyncio
@pytest.mark.parametrize("num_bytes", [10, 3 << 20])
async def test_a_value_of_any_size_is_answered(guests: Guests, num_bytes: int) -> None:
    async def call(
        binding: str, method: str, args: list[object], body: ByteStream | None
    ) -> object:
        return b"x" * num_bytes

    async with a_worker(guests, KV, bindings=[KvBinding(name="KV", namespace_id="n")]) as isolate:
        assert await fetched(isolate, heard=Heard(call)) == str(num_bytes).encode()


@pytest.mark.asyncio
async def test_a_refused_call_raises_what_it_is_called(guests: Guests) -> None:
    async def call(
        binding: str, method: str, args: list[object], body: ByteStream | None
    ) -> object:
        raise CallRefused("TypeError", "a key has at most 512 bytes")

    async with a_worker(guests, KV, bindings=[KvBinding(name="KV", namespace_id="n")]) as isolate:
        body = await fetched(isolate, heard=Heard(call))
    assert body == b"TypeError: a key has at most 512 bytes"
