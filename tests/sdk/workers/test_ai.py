"""`env.AI`: what is asked of a model, and what its answer reads like."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from support.worker_code import a_worker
from tenantry.workers import AiError, ReadableStream, patch_env
from tenantry.workers.testing import AiCall, FakeAI, completion, tool_call

MODEL = "@cf/moonshotai/kimi-k2.6"


def asks(expression: str) -> str:
    return f"""
        from workers import AbortController, AbortSignal, Response, WorkerEntrypoint

        class Default(WorkerEntrypoint):
            async def fetch(self, request):
                AI = self.env.AI
                {expression}
    """


@pytest.mark.asyncio
async def test_a_result_is_read_by_attribute_and_by_key(tmp_path: Path) -> None:
    code = asks(f"""
                result = await AI.run("{MODEL}", {{"prompt": "Hi"}}, {{"tags": ["a"]}})
                first = result.choices[0]
                assert first.message.content == result["choices"][0]["message"]["content"]
                assert first is result.choices[0] and isinstance(first, dict)
                assert not hasattr(result, "response")
                return Response.json([first.message.content, result.get("usage").total_tokens])
    """)
    ai = FakeAI("Hello.")
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        assert await (await worker.fetch("/")).json() == ["Hello.", 15]
    (call,) = ai.calls
    assert (call.model, call.inputs, call.options) == (MODEL, {"prompt": "Hi"}, {"tags": ["a"]})


@pytest.mark.asyncio
async def test_a_stream_that_is_returned_is_not_read_here(tmp_path: Path) -> None:
    code = asks("""
                stream = await AI.run("m", {"prompt": "Hi", "stream": True})
                return Response(stream)
    """)
    ai = FakeAI("One two")
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        response = await worker.fetch("/")
        assert response.headers["content-type"] == "text/event-stream"
        events = (await response.text()).split("\n\n")
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events[:-2]]
    assert deltas == [{"content": "One"}, {"content": " two"}, {}]
    assert events[-2:] == ["data: [DONE]", ""]
    assert ai.calls[0].was_passed_on


@pytest.mark.asyncio
async def test_a_stream_is_an_iterator_of_bytes(tmp_path: Path) -> None:
    code = asks("""
                stream = await AI.run("m", {"prompt": "Hi", "stream": True})
                pieces = [piece async for piece in stream]
                assert all(type(piece.to_bytes()) is type(piece) for piece in pieces)
                return Response(b"".join(pieces))
    """)
    ai = FakeAI(["One ", "two"])
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        text = await (await worker.fetch("/")).text()
    assert text.count("data: ") == 4
    assert not ai.calls[0].was_passed_on


@pytest.mark.asyncio
async def test_the_chunks_of_a_stream_are_read_as_events(tmp_path: Path) -> None:
    code = asks("""
                stream = await AI.run("m", {"prompt": "Hi", "stream": True})
                return Response((
                    chunk.choices[0].delta.get("content", "")
                    async for chunk in stream.events()
                ))
    """)
    async with a_worker(tmp_path, code, env={"AI": FakeAI("One two three")}) as worker:
        assert await (await worker.fetch("/")).text() == "One two three"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([b'data: {"a": 1}\n\n'], "the stream ended before the answer was whole"),
        (
            [b'data: {"errors": [{"code": 3040, ', b'"message": "Capacity"}]}\n', b"\n"],
            "^3040: Capacity$",
        ),
    ],
    ids=["truncated", "failed"],
)
async def test_a_stream_that_fails_is_an_error(pieces: list[bytes], message: str) -> None:
    with pytest.raises(AiError, match=message):
        async for _ in ReadableStream(iter(pieces)).events():
            pass


@pytest.mark.asyncio
async def test_what_a_model_refuses_is_raised_with_name_and_code(tmp_path: Path) -> None:
    code = asks("""
                try:
                    await AI.run("m", {"prompt": "Hi"})
                except Exception as error:
                    return Response.json([type(error).__name__, error.name, error.code, str(error)])
    """)
    refusal = AiError("InvalidInput", "5006: AiError: Bad input", 5006)
    async with a_worker(tmp_path, code, env={"AI": FakeAI(refusal)}) as worker:
        told = await (await worker.fetch("/")).json()
    assert told == ["AiError", "InvalidInput", 5006, "5006: AiError: Bad input"]


@pytest.mark.asyncio
async def test_options_are_a_dict_or_named(tmp_path: Path) -> None:
    code = asks("""
                await AI.run("m", {}, {"extraHeaders": {"x-session-affinity": "ada"}}, tags=["t"])
                raw = await AI.run("m", {}, returnRawResponse=True)
                return Response(f"{raw.status} {(await raw.json())['object']}")
    """)
    ai = FakeAI("Hello.")
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        assert await (await worker.fetch("/")).text() == "200 chat.completion"
    assert ai.calls[0].options == {
        "extraHeaders": {"x-session-affinity": "ada"},
        "tags": ["t"],
    }


@pytest.mark.asyncio
async def test_inputs_may_be_named_arguments(tmp_path: Path) -> None:
    code = asks("""
                await AI.run("m", messages=[], max_tokens=5)
                return Response("")
    """)
    ai = FakeAI("Hello.")
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        await worker.fetch("/")
    assert (ai.calls[0].inputs, ai.calls[0].options) == ({"messages": [], "max_tokens": 5}, {})


@pytest.mark.asyncio
async def test_long_inputs_arrive_whole(tmp_path: Path) -> None:
    text = "é" * 600_000
    code = asks("""
                await AI.run("m", {"messages": [{"role": "user", "content": await request.text()}]})
                return Response("")
    """)
    ai = FakeAI("Hello.")
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        await worker.fetch("/", method="POST", body=text)
    assert ai.calls[0].inputs == {"messages": [{"role": "user", "content": text}]}


@pytest.mark.asyncio
async def test_what_no_model_can_be_asked_is_named(tmp_path: Path) -> None:
    code = asks("""
                await AI.run("m", {"messages": [{"content": {1, 2}}]})
    """)
    async with a_worker(tmp_path, code, env={"AI": FakeAI("Hello.")}) as worker:
        with pytest.raises(TypeError, match=r"the inputs of AI.run: a set cannot leave a worker"):
            await worker.fetch("/")


@pytest.mark.asyncio
async def test_a_signal_ends_the_call(tmp_path: Path) -> None:
    code = asks("""
                controller = AbortController()
                self.ctx.wait_until(self.abort(controller))
                try:
                    await AI.run("m", {}, signal=controller.signal)
                except Exception as error:
                    return Response(f"{type(error).__name__}: {error}")

            async def abort(self, controller):
                await self.env.GATE.wait()
                controller.abort()
    """)
    begun = asyncio.Event()
    cancelled: list[bool] = []

    class NeverAnswers(FakeAI):
        async def answer(self, method: str, args: list[Any], body: Any) -> object:
            begun.set()
            try:
                return await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

    async with a_worker(tmp_path, code, env={"AI": NeverAnswers()}) as worker:
        with patch_env(GATE=begun):
            response = await worker.fetch("/")
        assert await response.text() == "AbortError: the operation was aborted"
    assert cancelled == [True]


@pytest.mark.asyncio
async def test_a_timeout_is_a_signal_too(tmp_path: Path) -> None:
    code = asks("""
                await AI.run("m", {}, {"signal": AbortSignal.any([AbortSignal.timeout(0)])})
    """)

    class NeverAnswers(FakeAI):
        async def answer(self, method: str, args: list[Any], body: Any) -> object:
            return await asyncio.Event().wait()

    async with a_worker(tmp_path, code, env={"AI": NeverAnswers()}) as worker:
        with pytest.raises(TimeoutError, match="the signal timed out after 0 ms"):
            await worker.fetch("/")


@pytest.mark.asyncio
async def test_a_client_that_goes_away_ends_the_call(tmp_path: Path) -> None:
    code = asks("""
                await AI.run("m", {})
    """)
    begun = asyncio.Event()
    ended = asyncio.Event()

    class NeverAnswers(FakeAI):
        async def answer(self, method: str, args: list[Any], body: Any) -> object:
            begun.set()
            try:
                return await asyncio.Event().wait()
            finally:
                ended.set()

    async with a_worker(tmp_path, code, env={"AI": NeverAnswers()}) as worker:
        asking = asyncio.create_task(worker.fetch("/"))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert ended.is_set()


@pytest.mark.asyncio
async def test_models_are_listed(tmp_path: Path) -> None:
    code = asks("""
                return Response((await AI.models({"search": "kimi"}))[0].name)
    """)
    async with a_worker(tmp_path, code, env={"AI": FakeAI(models=[{"name": MODEL}])}) as worker:
        assert await (await worker.fetch("/")).text() == MODEL


@pytest.mark.asyncio
async def test_what_is_cloudflares_own_says_so(tmp_path: Path) -> None:
    code = asks("""
                AI.gateway("mine")
    """)
    async with a_worker(tmp_path, code, env={"AI": FakeAI("x")}) as worker:
        with pytest.raises(AttributeError, match=r"AI\.gateway is Cloudflare's service"):
            await worker.fetch("/")


@pytest.mark.asyncio
async def test_answers_come_in_their_order(tmp_path: Path) -> None:
    code = asks("""
                first = await AI.run("m", {"n": 1})
                rest = [(await AI.run("m", {"n": n})).choices[0].message.content for n in (2, 3)]
                call = first.choices[0].message.tool_calls[0]
                return Response.json([call.function.name, call.function.arguments, *rest])
    """)

    def last(model: str, inputs: dict[str, Any], options: dict[str, Any]) -> str:
        return f"{model} {inputs['n']}"

    ai = FakeAI(completion(tool_calls=[tool_call("add", a=1)]), last)
    async with a_worker(tmp_path, code, env={"AI": ai}) as worker:
        assert await (await worker.fetch("/")).json() == ["add", '{"a": 1}', "m 2", "m 3"]
    assert [type(call) for call in ai.calls] == [AiCall] * 3
