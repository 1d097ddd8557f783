"""The owner of a request: what it asks of a node, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from opentelemetry.trace import NoOpTracer

from support.plain_text import END, PlainText, an_offer
from support.requests import parsed
from support.token_source import FakeTokenSource
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    RequestId,
    Sampling,
    TenantId,
)
from tenantry_runtime.edge.generation import Generation
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.edge.off_loop import INLINE_BYTES
from tenantry_runtime.edge.offer import Offer
from tenantry_runtime.errors import (
    CapacityExceeded,
    ContextExceeded,
    GenerationFailed,
    NodeUnavailable,
)
from tenantry_runtime.telemetry import RequestSpan
from tenantry_runtime.tenancy import Principal
from tenantry_runtime.text import Prompt

REQUEST_ID = RequestId("request-1")

# what `PlainText` makes of {"prompt": "hi"}: a character is a token
PROMPT = "user:hi\n"


def a_generation(
    node: FakeTokenSource, *, offer: Offer | None = None, body_bytes: int = 10, **fields: Any
) -> Generation:
    return Generation(
        request=parsed(**{"prompt": "hi", **fields}),
        body_bytes=body_bytes,
        request_id=REQUEST_ID,
        principal=Principal(tenant=TenantId("dev"), token_id="tok_1", scopes=frozenset({"run"})),
        offer=offer or an_offer(),
        nodes=Nodes([node]),
        span=RequestSpan(
            NoOpTracer(),
            headers={},
            method="POST",
            route="/",
            server=None,
            request_id=REQUEST_ID,
        ),
        threads=anyio.CapacityLimiter(1),
    )


async def run(generation: Generation) -> list[Event]:
    events: list[Event] = []

    async def emit(more: Sequence[Event], choice: int) -> None:
        events.extend(more)

    [last] = await generation.run(emit, response_id="r")
    return [*events, *last]


@pytest.mark.asyncio
async def test_a_node_gets_all_that_it_needs() -> None:
    node = FakeTokenSource(END)

    await run(a_generation(node, max_tokens=7, seed=5, prompt_cache_key="ses_1"))

    [submit] = node.submits
    assert submit.request_id == REQUEST_ID
    assert (submit.tenant, submit.session) == ("dev", "ses_1")
    assert submit.model == "@cf/moonshotai/kimi-k2.6"
    assert submit.token_ids == list(map(ord, PROMPT))
    assert submit.stop_token_ids == (ord(END),)
    assert submit.max_tokens == 7
    assert submit.sampling == Sampling(seed=5, temperature=0.6, top_p=0.95, max_tokens=7)


@pytest.mark.asyncio
async def test_without_a_limit_the_answer_may_fill_the_context() -> None:
    node = FakeTokenSource(END)

    await run(a_generation(node, offer=an_offer(context_tokens=100)))

    assert node.submits[0].max_tokens == 100 - len(PROMPT)


@pytest.mark.asyncio
async def test_the_nodes_context_counts_where_it_is_the_smaller() -> None:
    node = FakeTokenSource(END, context_tokens=50)

    await run(a_generation(node, offer=an_offer(context_tokens=100)))

    assert node.submits[0].max_tokens == 50 - len(PROMPT)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("context_tokens", "max_tokens", "num_tokens"),
    [
        (len(PROMPT), None, len(PROMPT) + 1),
        (len(PROMPT) - 3, None, len(PROMPT) + 1),
        (len(PROMPT) + 5, 6, len(PROMPT) + 6),
    ],
    ids=["no room", "prompt alone too long", "answer too long"],
)
async def test_what_does_not_fit_the_context_is_refused(
    context_tokens: int, max_tokens: int | None, num_tokens: int
) -> None:
    node = FakeTokenSource(END)
    offer = an_offer(context_tokens=context_tokens)

    with pytest.raises(ContextExceeded) as caught:
        await run(a_generation(node, offer=offer, max_tokens=max_tokens))

    assert (caught.value.num_tokens, caught.value.limit) == (num_tokens, context_tokens)
    assert node.submits == []


@pytest.mark.asyncio
async def test_an_answer_that_fits_exactly_is_made() -> None:
    node = FakeTokenSource(END)

    await run(a_generation(node, offer=an_offer(context_tokens=len(PROMPT) + 5), max_tokens=5))

    assert node.submits[0].max_tokens == 5


@pytest.mark.asyncio
async def test_events_are_emitted_step_by_step() -> None:
    gate = anyio.Event()
    node = FakeTokenSource("a", gate, f"b{END}")
    emitted: list[Event] = []

    async def emit(events: Sequence[Event], choice: int) -> None:
        emitted.extend(events)
        # the second step comes only after the first has been emitted
        gate.set()

    [last] = await a_generation(node).run(emit, response_id="r")

    assert emitted == [ContentDelta("a")]
    assert last[0] == ContentDelta("b")
    assert isinstance(last[1], Finish)
    assert not node.cancelled.is_set()


@pytest.mark.asyncio
async def test_a_stop_string_cancels_the_sequence_on_the_node() -> None:
    node = FakeTokenSource("ab", "c stop", " never seen", endless=True)

    events = await run(a_generation(node, stop="stop"))

    assert node.cancelled.is_set()
    assert node.num_steps == 2
    last = events[-1]
    assert isinstance(last, Finish)
    assert last.reason is FinishReason.STOP
    # the tokens of the stop string were generated all the same
    assert last.usage.completion_tokens == 8


@pytest.mark.asyncio
async def test_a_reader_that_leaves_cancels_the_sequence() -> None:
    node = FakeTokenSource("a", endless=True)
    generation = a_generation(node)

    with anyio.CancelScope() as scope:

        async def emit(events: Sequence[Event], choice: int) -> None:
            scope.cancel()
            await anyio.lowlevel.checkpoint()

        await generation.run(emit, response_id="r")

    assert node.cancelled.is_set()
    assert node.num_open == 0
    assert node.num_steps == 1


@pytest.mark.asyncio
async def test_a_slow_reader_takes_no_more_from_the_node() -> None:
    node = FakeTokenSource("a", endless=True)
    generation = a_generation(node)
    is_held = anyio.Event()

    async def emit(events: Sequence[Event], choice: int) -> None:
        is_held.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: generation.run(emit, response_id="r"))
        await is_held.wait()
        await anyio.wait_all_tasks_blocked()
        assert node.num_steps == 1
        tasks.cancel_scope.cancel()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error",
    [CapacityExceeded(), GenerationFailed("x"), NodeUnavailable("m"), ContextExceeded(2, 1)],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_node_says_comes_out(error: Any) -> None:
    node = FakeTokenSource("a", error)

    with pytest.raises(type(error)) as caught:
        await run(a_generation(node))

    assert caught.value is error
    assert node.num_open == 0


@pytest.mark.asyncio
async def test_a_sequence_that_ends_without_a_reason_has_failed() -> None:
    node = FakeTokenSource("a", finishes=False)

    with pytest.raises(GenerationFailed, match="without saying why"):
        await run(a_generation(node))


@pytest.mark.asyncio
async def test_no_healthy_node_is_said_before_the_prompt_is_tokenized() -> None:
    node = FakeTokenSource(END)
    node.is_healthy = False
    generation = a_generation(node, offer=an_offer(text=_Untouchable()))

    with pytest.raises(NodeUnavailable):
        await run(generation)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body_bytes", "is_inline"), [(INLINE_BYTES, True), (INLINE_BYTES + 1, False)]
)
async def test_long_prompts_are_tokenized_in_a_thread(body_bytes: int, is_inline: bool) -> None:
    text = _Watched()

    await run(a_generation(FakeTokenSource(END), offer=an_offer(text=text), body_bytes=body_bytes))

    assert (text.thread is threading.main_thread()) == is_inline


class _Watched(PlainText):
    thread: threading.Thread | None = None

    def encode(self, prompt: Prompt) -> list[int]:
        self.thread = threading.current_thread()
        return super().encode(prompt)


class _Untouchable(PlainText):
    def encode(self, prompt: Prompt) -> list[int]:
        raise AssertionError
