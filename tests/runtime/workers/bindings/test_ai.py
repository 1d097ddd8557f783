"""`env.AI`: the API's own answers, limits and records, for the tenant whose worker calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.bindings import INVOCATION, MODEL, TENANT, TRACE, a_world, chunks, whole
from support.byte_streams import Pieces
from support.edges import OTHER_ACCOUNT
from support.ledgers import usage_rows
from support.plain_text import END
from support.token_source import FakeTokenSource
from tenantry_runtime.core import TenantId
from tenantry_runtime.edge.batch_worker import BatchWorker
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.dialects.workers_ai import WorkersAI
from tenantry_runtime.errors import CapacityExceeded, NodeUnavailable
from tenantry_runtime.workers.interface import CallRefused, HttpResponse, StreamResult

HI = {"messages": [{"role": "user", "content": "hi"}]}
PATIENCE_S = 30.0


@pytest.mark.asyncio
async def test_the_result_is_that_of_the_api_without_its_envelope(tmp_path: Path) -> None:
    async with a_world(tmp_path, FakeTokenSource("4", f"2{END}")) as world:
        result = await world.caller().run(HI)
        over_http = (await world.edge.run()).json()["result"]

    assert result["choices"] == over_http["choices"]
    assert result["usage"] == over_http["usage"]
    assert result["choices"][0]["message"]["content"] == "42"


@pytest.mark.asyncio
async def test_a_stream_is_the_same_bytes_as_over_http(tmp_path: Path) -> None:
    async with a_world(tmp_path, FakeTokenSource("4", f"2{END}")) as world:
        answer = await world.caller().run({**HI, "stream": True})
        assert isinstance(answer, StreamResult)
        mine = chunks(await whole(answer))
        theirs = chunks((await world.edge.run(stream=True)).content)

    assert answer.content_type == "text/event-stream"
    assert [_unnamed(each) for each in mine] == [_unnamed(each) for each in theirs]
    assert mine[-1] == "[DONE]"


def _unnamed(chunk: Any) -> Any:
    return chunk if isinstance(chunk, str) else {**chunk, "id": "", "created": 0}


@pytest.mark.asyncio
async def test_events_come_while_the_model_still_writes(tmp_path: Path) -> None:
    goes_on = anyio.Event()
    async with a_world(tmp_path, FakeTokenSource("first", goes_on, f"second{END}")) as world:
        answer = await world.caller().run({**HI, "stream": True})
        stream = aiter(answer.stream)
        read = b""
        with anyio.fail_after(PATIENCE_S):
            while b"first" not in read:
                read += await anext(stream)
        assert b"second" not in read
        goes_on.set()
        rest = b"".join([piece async for piece in stream])

    assert b"second" in rest
    assert rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.asyncio
async def test_the_tenant_pays_and_the_record_names_the_worker(tmp_path: Path) -> None:
    async with a_world(tmp_path, FakeTokenSource(f"ab{END}"), has_ledger=True) as world:
        await world.caller().run(HI)
        [row] = (await usage_rows(world.edge.services.store.database)).values()

    assert (row["account_id"], row["token_id"]) == (TENANT, "")
    assert (row["worker"], row["worker_version"]) == ("caller", "version-of-caller")
    assert (row["outcome"], row["output_tokens"]) == ("stop", 3)


@pytest.mark.asyncio
async def test_the_trace_of_the_invocation_goes_on(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    async with a_world(tmp_path, tracer=provider.get_tracer("test"), has_ledger=True) as world:
        await world.caller().run(HI)
        [row] = (await usage_rows(world.edge.services.store.database)).values()

    root = next(span for span in spans.get_finished_spans() if span.name.startswith("chat"))
    assert root.parent is not None
    assert format(root.parent.span_id, "016x") == INVOCATION.traceparent.split("-")[2]
    assert row["trace_id"] == TRACE


SESSIONS: list[tuple[str | None, dict[str, Any], dict[str, Any], str | None]] = [
    ("theirs", {}, {}, "theirs"),
    ("theirs", {}, {"extraHeaders": {"X-Session-Affinity": "mine"}}, "mine"),
    ("theirs", {}, {"sessionOptions": {"extraHeaders": {"x-session-affinity": "old"}}}, "old"),
    ("theirs", {"prompt_cache_key": "key"}, {}, "key"),
    (
        "theirs",
        {"prompt_cache_key": "key"},
        {"extraHeaders": {"x-session-affinity": "mine"}},
        "mine",
    ),
    (None, {}, {}, None),
    # what a caller sends that is no session is not the worker's fault
    ("x" * 5000, {}, {}, None),
    ("a\r\nauthorization: b", {}, {}, None),
]
"""Inherited; inputs; options; which it is."""


@pytest.mark.asyncio
async def test_the_session_is_what_is_said_most_explicitly(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        for inherited, inputs, options, session in SESSIONS:
            await world.caller().with_(session=inherited).run({**HI, **inputs}, options)
            assert (inputs, options, world.node.submits[-1].session) == (inputs, options, session)


@pytest.mark.asyncio
async def test_a_raw_response_has_the_result_and_the_requests_id(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        caller = world.caller()
        plain = await caller.run(HI, {"returnRawResponse": True})
        streamed = await caller.run({**HI, "stream": True}, {"returnRawResponse": True})
        refused = await caller.run({"messages": 1}, {"returnRawResponse": True})
        printed, events = json.loads(await whole(plain)), await whole(streamed)
        why = json.loads(await whole(refused))

    assert isinstance(plain, HttpResponse)
    assert plain.status == 200
    # workers compare the whole value
    assert dict(plain.headers)["content-type"] == "application/json"
    assert "cf-ai-req-id" in dict(plain.headers)
    assert printed["object"] == "chat.completion"
    assert dict(streamed.headers)["content-type"] == "text/event-stream"
    assert events.endswith(b"data: [DONE]\n\n")
    assert (refused.status, why["internalCode"], why["name"]) == (400, 5006, "AiError")


REFUSED: list[tuple[list[Any], int, str]] = [
    (["@cf/no/such", HI], 5007, "5007: No such model @cf/no/such"),
    (["../../accounts/other/ai/run/x", HI], 5007, "No such model"),
    ([MODEL, {"messages": "x"}], 5006, "5006: AiError: Bad input"),
    ([MODEL, {"nonsense": 1, **HI}], 5006, "nonsense"),
    ([MODEL, {**HI, "account": OTHER_ACCOUNT}], 5006, "account"),
    ([MODEL, HI, {"principal": "x"}], 5006, "there is no option 'principal'"),
    ([MODEL, HI, {"gateway": {"id": "g"}}], 5006, "AI Gateway"),
    ([MODEL, HI, {"websocket": True}], 5006, "websocket"),
    ([MODEL, HI, {"tags": ["a b"]}], 5006, "options.tags"),
    ([MODEL, HI, {"tags": ["a", "b", "c", "d", "e", "f"]}], 5006, "options.tags"),
    ([MODEL, HI, {"tags": "a"}], 5006, "options.tags"),
    ([MODEL, HI, {"extraHeaders": {"x-session-affinity": "a\r\nb: c"}}], 5006, "printable"),
    ([MODEL, HI, {"extraHeaders": {"x-session-affinity": ""}}], 5006, "printable"),
    ([MODEL, HI, {"extraHeaders": {"x-session-affinity": "й"}}], 5006, "printable"),
    ([MODEL, {**HI, "model": "@cf/zai-org/glm-5.2"}], 5006, "is not the model of the path"),
    ([MODEL, {"messages": [{"role": "user", "content": b"\xff"}], "seed": 1 << 70}], 5006, ""),
]
"""Arguments; the code, and a part of what is said."""


@pytest.mark.asyncio
async def test_what_the_api_refuses_raises_with_its_code(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        for args, code, text in REFUSED:
            with pytest.raises(CallRefused) as refused:
                await world.caller().call("AI", "run", *args)
            error = refused.value
            assert (args, error.name, error.code) == (args, "AiError", code)
            assert error.message.startswith(f"{code}: ")
            assert text in error.message
        assert world.node.submits == []


MISTYPED: list[tuple[str, list[Any]]] = [
    ("run", []),
    ("run", [MODEL]),
    ("run", [7, HI]),
    ("run", [{"id": MODEL}, HI]),
    ("run", [MODEL, "hi"]),
    ("run", [MODEL, [HI]]),
    ("run", [MODEL, {1: 2}]),
    ("run", [MODEL, HI, "options"]),
    ("run", [MODEL, HI, {"extraHeaders": ["x"]}]),
    ("run", [MODEL, HI, {"extraHeaders": {"x-session-affinity": 7}}]),
    ("run", [MODEL, HI, {"returnRawResponse": "yes"}]),
    ("run", [MODEL, HI, {}, "more"]),
    ("models", [{"search": ["x"]}]),
    ("models", ["x"]),
    ("toMarkdown", []),
    ("__init__", []),
]
"""Methods and arguments."""


@pytest.mark.asyncio
async def test_arguments_of_another_type_raise_a_type_error(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        for method, args in MISTYPED:
            with pytest.raises(CallRefused) as refused:
                await world.caller().call("AI", method, *args)
            error = refused.value
            assert (method, args, error.name, error.code) == (method, args, "TypeError", None)


@pytest.mark.asyncio
async def test_long_inputs_come_as_a_body_and_are_limited_like_the_apis(tmp_path: Path) -> None:
    limits = Limits(max_body_bytes=100_000)
    async with a_world(tmp_path, limits=limits) as world:
        long = {"prompt": "hi", "metadata": {"long": "x" * 70_000}}
        body = Pieces(*(msgspec.json.encode(long)[at : at + 9999] for at in range(0, 80_000, 9999)))
        await world.caller().run(None, {"rejectIfBusy": True}, body=body)
        [submit] = world.node.submits

        cached = Pieces(b'{"prompt": "hi", "prompt_cache_key": null}')
        await world.caller().with_(session="theirs").run(None, body=cached)
        assert world.node.submits[-1].session == "theirs"
        deep = Pieces(b'{"prompt": "hi", "options": ' + b"[" * 5000 + b"]" * 5000 + b"}")
        with pytest.raises(CallRefused, match="5006: "):
            await world.caller().run(None, {"rejectIfBusy": True}, body=deep)

        too_long = Pieces(b'{"prompt": "', *[b"x" * 60_000] * 9)
        with pytest.raises(CallRefused, match="3006: "):
            await world.caller().run(None, body=too_long)
        broken = Pieces(b'{"prompt": ')
        with pytest.raises(CallRefused, match="5006: "):
            await world.caller().run(None, body=broken)

    assert submit.may_wait is False
    assert body.is_closed
    assert too_long.is_closed
    assert too_long.num_read == 3
    assert broken.is_closed


@pytest.mark.asyncio
async def test_an_answer_too_long_for_a_frame_is_a_stream_of_json(tmp_path: Path) -> None:
    node = FakeTokenSource("x" * 300_000, END)
    async with a_world(tmp_path, node) as world:
        answer = await world.caller().run(HI)
        assert isinstance(answer, StreamResult)
        result = json.loads(await whole(answer))

    assert answer.content_type == "application/json"
    assert result["choices"][0]["message"]["content"] == "x" * 300_000


@pytest.mark.asyncio
async def test_a_full_pool_is_the_apis_error(tmp_path: Path) -> None:
    async with a_world(tmp_path, FakeTokenSource(CapacityExceeded())) as world:
        with pytest.raises(CallRefused) as refused:
            await world.caller().run(HI)
        with pytest.raises(CallRefused):
            await world.caller().run({**HI, "stream": True})

    assert refused.value.message == "3040: Capacity temporarily exceeded, please try again."


@pytest.mark.asyncio
async def test_the_tenants_limits_hold(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        accounts = world.edge.services.store.accounts
        await accounts.change(TENANT, changes={("quota", "requests_per_minute"): 1})
        caller = world.caller()
        await caller.run(HI)
        with pytest.raises(CallRefused, match="3021: rate limiting"):
            await caller.run(HI)


@pytest.mark.asyncio
async def test_a_suspended_or_deleted_account_runs_nothing(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        caller, accounts = world.caller(), world.edge.services.store.accounts
        await accounts.suspend(TENANT)
        with pytest.raises(CallRefused, match="3023: "):
            await caller.run(HI)
        await accounts.resume(TENANT)
        await accounts.delete(TENANT)
        with pytest.raises(CallRefused, match="10000: "):
            await caller.run(HI)
        assert world.node.submits == []


@pytest.mark.asyncio
async def test_cancelling_the_call_cancels_the_sequence(tmp_path: Path) -> None:
    node = FakeTokenSource("a", endless=True)
    async with a_world(tmp_path, node, has_ledger=True) as world:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.caller().run, HI)
            await node.started.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(PATIENCE_S):
            await node.cancelled.wait()
            while not (rows := await usage_rows(world.edge.services.store.database)):
                # the record is written by a task that nobody waits for
                await anyio.lowlevel.checkpoint()

    [row] = rows.values()
    assert row["outcome"] == "client_gone"


@pytest.mark.asyncio
async def test_closing_a_stream_cancels_the_sequence(tmp_path: Path) -> None:
    node = FakeTokenSource("a", endless=True)
    async with a_world(tmp_path, node) as world:
        answer = await world.caller().run({**HI, "stream": True})
        await anext(aiter(answer.stream))
        await answer.stream.aclose()
        with anyio.fail_after(PATIENCE_S):
            await node.cancelled.wait()


@pytest.mark.asyncio
async def test_a_stream_breaks_off_when_the_edge_ends(tmp_path: Path) -> None:
    node = FakeTokenSource("a", anyio.Event())
    async with a_world(tmp_path, node) as world:
        answer = await world.caller().run({**HI, "stream": True})
        await anext(aiter(answer.stream))
    with pytest.raises(NodeUnavailable):
        await anext(aiter(answer.stream))


@pytest.mark.asyncio
async def test_a_stream_that_nobody_reads_holds_the_model_back(tmp_path: Path) -> None:
    node = FakeTokenSource("a" * 100, endless=True)
    async with a_world(tmp_path, node) as world:
        answer = await world.caller().run({**HI, "stream": True})
        num_steps = -1
        with anyio.fail_after(PATIENCE_S):
            while num_steps != node.num_steps:
                num_steps = node.num_steps
                await anyio.wait_all_tasks_blocked()
        assert num_steps < 2000
        # what waited comes at once, and the model goes on
        first = await anext(aiter(answer.stream))
        assert len(first) > 60_000
        with anyio.fail_after(PATIENCE_S):
            while node.num_steps == num_steps:
                await anext(aiter(answer.stream))
        await answer.stream.aclose()


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_the_invocations_deadline_is_the_requests(tmp_path: Path, stream: bool) -> None:
    async with a_world(tmp_path, FakeTokenSource("a", anyio.Event()), has_ledger=True) as world:
        caller = world.caller().with_(deadline_s=anyio.current_time() + 0.2)
        if stream:
            answer = await caller.run({**HI, "stream": True})
            *_, last = chunks(await whole(answer))
            assert last["errors"][0]["code"] == 3007
        else:
            with pytest.raises(CallRefused, match="3007: "):
                await caller.run(HI)
        [row] = (await usage_rows(world.edge.services.store.database)).values()

    assert row["outcome"] == "timeout"


@pytest.mark.asyncio
async def test_a_batch_is_submitted_run_for_the_worker_and_polled(tmp_path: Path) -> None:
    async with a_world(tmp_path, FakeTokenSource(f"ab{END}"), has_ledger=True) as world:
        caller = world.caller()
        requests = [{**HI, "external_reference": "r"}]
        queued = await caller.run({"requests": requests}, {"queueRequest": True})
        assert queued["status"] == "queued"
        stranger = world.caller(tenant=TenantId(OTHER_ACCOUNT))
        with pytest.raises(CallRefused, match="there is no such batch"):
            await stranger.run({"request_id": queued["request_id"]})

        batches = BatchWorker(world.edge.services, WorkersAI())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(batches.run)
            with anyio.fail_after(PATIENCE_S):
                polled = queued
                while polled["status"] != "complete":
                    # a client has nothing else to wait for
                    await anyio.sleep(0.02)
                    polled = await caller.run({"request_id": queued["request_id"]})
            batches.close()
        [row] = (await usage_rows(world.edge.services.store.database)).values()

    [response] = polled["responses"]
    assert response["external_reference"] == "r"
    assert response["result"]["choices"][0]["message"]["content"] == "ab"
    assert (row["account_id"], row["worker"]) == (TENANT, "caller")
    assert (row["worker_version"], row["token_id"]) == ("version-of-caller", "")


@pytest.mark.asyncio
async def test_what_is_wrong_in_a_batch_is_named(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        with pytest.raises(CallRefused, match=r"5006: .*requests/0/messages"):
            await world.caller().run({"requests": [{"messages": 3}]}, {"queueRequest": True})


@pytest.mark.asyncio
async def test_models_are_listed_as_the_api_lists_them(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        caller = world.caller()
        every = await caller.call("AI", "models")
        over_http = await world.edge.get("/client/v4/accounts/dev/ai/models/search")
        found = await caller.call("AI", "models", {"search": "GLM", "per_page": 1, "task": None})
        with pytest.raises(CallRefused, match="5006: "):
            await caller.call("AI", "models", {"page": 0})

    assert every == over_http.json()["result"]
    assert [model["name"] for model in found] == ["@cf/zai-org/glm-5.2"]
