"""However a request ends: what the edge tells the ledger of it, as its record has it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from support.edges import ACCOUNT, RUN, AsgiCall, Edge, an_edge, make_state
from support.ledgers import usage_rows
from support.plain_text import END, GLM, KIMI, an_offer
from support.requests import a_body
from support.routes import MODEL, a_member
from support.token_source import FakeTokenSource, Step
from tenantry_runtime.catalog import Prices
from tenantry_runtime.core import Usage
from tenantry_runtime.edge.app import build_app
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.edge.generation import _served_by
from tenantry_runtime.errors import (
    CapacityExceeded,
    ContextExceeded,
    GenerationFailed,
    NodeLost,
    NodeUnavailable,
)
from tenantry_runtime.routing.placement import Asked
from tenantry_runtime.routing.router import Router
from tenantry_runtime.tenancy import Entry, NoLedger, Opening
from tenantry_runtime.tenancy.ledger import open_ledger

# what `PlainText` makes of one user message "hi": a character is a token
NUM_PROMPT = len("user:hi\n")
CACHED = 3

PRICED = msgspec.structs.replace(KIMI, prices=Prices(input=0.95, cached_input=0.16, output=4.0))


@asynccontextmanager
async def a_billing_edge(
    folder: Path, *script: Step, limits: Limits | None = None, **node: Any
) -> AsyncIterator[Edge]:
    """An edge with a ledger in front of a node; its model has Kimi's prices."""
    state = await make_state(folder)
    source = FakeTokenSource(*script, cached_tokens=CACHED, **node)
    offers = [an_offer(PRICED), an_offer(GLM)]
    async with (
        an_edge(state, source, offers=offers, limits=limits) as edge,
        open_ledger(edge.services.store.database, folder / "journal", max_open=10) as ledger,
    ):
        services = replace(edge.services, ledger=ledger)
        yield Edge(app=build_app(services), services=services, state=state)


async def the_record(edge: Edge) -> dict[str, Any]:
    [row] = (await usage_rows(edge.services.store.database)).values()
    return row


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_a_whole_answer_is_recorded_as_its_usage_says(tmp_path: Path, stream: bool) -> None:
    async with a_billing_edge(tmp_path, "ab", f"c{END}") as edge:
        response = await edge.run(stream=stream)
        row = await the_record(edge)

    assert response.status_code == 200
    assert row["request_id"] == response.headers["cf-ai-req-id"]
    assert (row["account_id"], row["model"]) == (ACCOUNT, KIMI.id)
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == (
        NUM_PROMPT,
        CACHED,
        4,
    )
    assert row["outcome"] == "stop"
    assert row["formats"] == "prefill=bf16/bf16 decode=bf16/bf16"
    assert row["revision"]
    # 5 uncached tokens at 0.95, 3 cached at 0.16 and 4 of output at 4.00 USD per million
    assert row["cost"] == 5 * 950_000 + 3 * 160_000 + 4 * 4_000_000
    assert row["started_ms"] <= row["ended_ms"]


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_several_answers_are_one_record_with_the_prompt_once(
    tmp_path: Path, stream: bool
) -> None:
    async with a_billing_edge(tmp_path, "ab", f"c{END}") as edge:
        response = await edge.run(stream=stream, n=3)
        row = await the_record(edge)

    assert response.status_code == 200
    assert row["request_id"] == response.headers["cf-ai-req-id"]
    tokens = (row["input_tokens"], row["cached_tokens"], row["output_tokens"])
    assert tokens == (NUM_PROMPT, CACHED, 3 * 4)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_says_what_it_costs_in_neurons(tmp_path: Path, stream: bool) -> None:
    async with a_billing_edge(tmp_path, f"abc{END}") as edge:
        response = await edge.run(stream=stream)
        row = (await usage_rows(edge.services.store.database))[response.headers["cf-ai-req-id"]]

    expected = f'"neurons":{row["cost"] / 11_000_000}'
    assert expected in response.text


@pytest.mark.asyncio
async def test_a_model_without_prices_says_nothing_of_neurons(tmp_path: Path) -> None:
    async with a_billing_edge(tmp_path, END) as edge, edge.client() as client:
        path = RUN.replace("kimi-k2.6", "glm-5.2")
        response = await client.post(path, content=a_body())
        row = await the_record(edge)

    assert "usage" in response.text
    assert "neurons" not in response.text
    assert (row["cost"], row["input_tokens"]) == (0, NUM_PROMPT)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_a_record_is_there_before_the_end_is_sent(tmp_path: Path, stream: bool) -> None:
    num_rows: list[int] = []
    async with a_billing_edge(tmp_path, "ab", f"c{END}") as edge:

        class Watched(AsgiCall):
            async def _send(self, message: Any) -> None:
                printed = message.get("body", b"")
                if b"[DONE]" in printed or b'"success":true' in printed:
                    num_rows.append(len(await usage_rows(edge.services.store.database)))
                await super()._send(message)

        await Watched(edge=edge, body=a_body(stream=stream))()

    assert num_rows == [1]


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])
async def test_a_client_that_goes_away_pays_what_was_generated(
    tmp_path: Path, stream: bool
) -> None:
    async with a_billing_edge(tmp_path, "ab", anyio.Event()) as edge:
        call = AsgiCall(edge=edge, body=a_body(stream=stream))
        await when_running(edge, call, call.leaves.set)
        row = await the_record(edge)

    assert (row["outcome"], row["output_tokens"]) == ("client_gone", 2)
    assert (row["input_tokens"], row["cached_tokens"]) == (NUM_PROMPT, CACHED)


@pytest.mark.asyncio
async def test_a_client_that_goes_away_before_the_first_token_pays_nothing(tmp_path: Path) -> None:
    async with a_billing_edge(tmp_path, anyio.Event()) as edge:
        call = AsgiCall(edge=edge, body=a_body(stream=True))
        await when_running(edge, call, call.leaves.set)
        row = await the_record(edge)

    assert (row["outcome"], row["input_tokens"], row["cost"]) == ("client_gone", 0, 0)


@pytest.mark.asyncio
async def test_a_client_that_takes_nothing_for_too_long_has_gone(tmp_path: Path) -> None:
    limits = Limits(stall_timeout_s=0.05)
    async with a_billing_edge(tmp_path, "ab", "c", limits=limits, endless=True) as edge:
        await AsgiCall(edge=edge, body=a_body(stream=True), takes=False)()
        row = await the_record(edge)

    assert (row["outcome"], row["output_tokens"]) == ("client_gone", 2)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_takes_too_long_is_not_billed(tmp_path: Path, stream: bool) -> None:
    # a stream that has begun has no deadline any more
    script: list[Step] = [anyio.Event()] if stream else ["ab", anyio.Event()]
    async with a_billing_edge(tmp_path, *script, limits=Limits(request_timeout_s=0.05)) as edge:
        response = await edge.run(stream=stream)
        row = await the_record(edge)

    assert response.status_code == 408
    assert (row["outcome"], row["input_tokens"], row["cost"]) == ("timeout", 0, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", [GenerationFailed("x"), NodeLost("m")], ids=["failed", "lost"])
async def test_what_fails_is_billed_as_far_as_it_was_delivered(
    tmp_path: Path, stream: bool, error: Any
) -> None:
    async with a_billing_edge(tmp_path, "ab", error) as edge:
        await edge.run(stream=stream)
        row = await the_record(edge)

    billed = (NUM_PROMPT, CACHED, 2) if stream else (0, 0, 0)
    assert row["outcome"] == "failed"
    assert (row["input_tokens"], row["cached_tokens"], row["output_tokens"]) == billed


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [False, True])
async def test_an_edge_that_ends_bills_what_was_delivered(tmp_path: Path, stream: bool) -> None:
    async with a_billing_edge(tmp_path, "ab", anyio.Event()) as edge:
        call = AsgiCall(edge=edge, body=a_body(stream=stream))
        await when_running(edge, call, edge.services.open_requests.close)
        row = await the_record(edge)

    assert (row["outcome"], row["output_tokens"]) == ("edge_closing", 2 if stream else 0)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error",
    [CapacityExceeded(), ContextExceeded(2, 1), NodeUnavailable("m")],
    ids=lambda error: type(error).__name__,
)
async def test_what_is_refused_before_it_ran_has_no_record(tmp_path: Path, error: Any) -> None:
    async with a_billing_edge(tmp_path, error) as edge:
        response = await edge.run()
        rows = await usage_rows(edge.services.store.database)

    assert response.status_code >= 400
    assert rows == {}


@pytest.mark.asyncio
async def test_an_answer_that_is_whole_when_the_edge_ends_is_sent_and_billed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_billing_edge(tmp_path, f"ab{END}") as edge:
        ledger: Any = edge.services.ledger
        end = ledger.end

        async def ends_meanwhile(entry: Any) -> bool:
            edge.services.open_requests.close()
            is_safe: bool = await end(entry)
            return is_safe

        monkeypatch.setattr(ledger, "end", ends_meanwhile)
        response = await edge.run()
        row = await the_record(edge)

    assert response.status_code == 200
    assert (row["outcome"], row["output_tokens"]) == ("stop", 3)


async def when_running(edge: Edge, call: AsgiCall, then: Callable[[], None]) -> None:
    """Let a call go as far as its node does, do something to it, and wait for its end."""
    [source] = edge.services.nodes.all
    assert isinstance(source, FakeTokenSource)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await source.started.wait()
        # from here on nothing waits for a thread
        await anyio.wait_all_tasks_blocked()
        then()


@pytest.mark.asyncio
async def test_an_answer_that_is_whole_in_time_is_sent_however_long_its_record_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_billing_edge(tmp_path, f"ab{END}", limits=Limits(request_timeout_s=1.0)) as edge:
        ledger: Any = edge.services.ledger
        end = ledger.end

        async def takes_long(entry: Any) -> bool:
            # longer than what is left, whatever that is
            await anyio.sleep(1.1)
            is_safe: bool = await end(entry)
            return is_safe

        monkeypatch.setattr(ledger, "end", takes_long)
        response = await edge.run()
        row = await the_record(edge)

    assert response.status_code == 200
    assert row["outcome"] == "stop"


@pytest.mark.asyncio
async def test_what_is_sent_has_been_counted_as_delivered_before(tmp_path: Path) -> None:
    num_delivered = [0]
    sent: list[tuple[str, int]] = []

    class Watched(NoLedger):
        @asynccontextmanager
        async def open(self, opening: Opening) -> AsyncIterator[Entry]:
            async with super().open(opening) as entry:

                def delivered(usage: Usage) -> None:
                    num_delivered[0] = usage.completion_tokens

                entry.delivered = delivered  # type: ignore[method-assign]
                yield entry

    class WatchedCall(AsgiCall):
        async def _send(self, message: Any) -> None:
            for line in message.get("body", b"").split(b"\n\n"):
                if b'"content"' in line:
                    [choice] = json.loads(line.removeprefix(b"data: "))["choices"]
                    sent.append((choice["delta"]["content"], num_delivered[0]))
            await super()._send(message)

    async with a_billing_edge(tmp_path, "ab", "cde", "f", END) as edge:
        services = replace(edge.services, ledger=Watched())
        watched = Edge(app=build_app(services), services=services, state=edge.state)
        await WatchedCall(edge=watched, body=a_body(stream=True))()

    # the opening's empty content goes out with the first event
    assert sent == [("", 2), ("ab", 2), ("cde", 5), ("f", 6)]


def test_two_members_are_told_apart_by_phase() -> None:
    router = Router(differences=lambda prefill, decode: ())
    router.join("p", [a_member("prefill", weights_format="int4", revision="a" * 64)])
    router.join("d", [a_member("decode", cache_format="fp8", revision="b" * 64)])
    placement = router.prefill(Asked(tenant="t", model=MODEL, num_tokens=5), 0.0)
    before = _served_by(placement)
    router.decode(placement, 0.0)

    assert before == {"revision": "a" * 64, "formats": "prefill=int4/bf16"}
    # the checkpoint of the member that writes the answer
    assert _served_by(placement) == {
        "revision": "b" * 64,
        "formats": "prefill=int4/bf16 decode=bf16/fp8",
    }
