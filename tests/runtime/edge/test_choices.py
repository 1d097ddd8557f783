"""Several answers to one request: sequences of their own, one account, and one end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry.trace import NoOpTracer

from support.books import Books
from support.engine import a_submit, an_engine, assert_likelihoods, expected_answer
from support.engine_source import EngineSource
from support.fake_decoder import FakeConfig, FakeDecoder
from support.plain_text import END, KIMI, an_offer
from support.requests import parsed
from support.token_source import FakeTokenSource
from tenantry_runtime.core import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    LogprobsDelta,
    RequestId,
    TenantId,
    Usage,
)
from tenantry_runtime.edge.generation import Generation
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import CapacityExceeded, GenerationFailed, TenantryError
from tenantry_runtime.pool.messages import Submit
from tenantry_runtime.telemetry import RequestSpan
from tenantry_runtime.tenancy import Principal

REQUEST_ID = RequestId("request-1")
# what `PlainText` makes of {"prompt": "hi"}: a character is a token
PROMPT = "user:hi\n"


def a_generation(
    node: FakeTokenSource,
    num_choices: int,
    *,
    books: Books | None = None,
    stream: bool = True,
    may_wait: bool = True,
    **sampling: Any,
) -> Generation:
    request = parsed(prompt="hi")
    books = books or Books()
    return Generation(
        request=msgspec.structs.replace(
            request,
            sampling=msgspec.structs.replace(request.sampling, seed=5, **sampling),
            num_choices=num_choices,
            stream=stream,
            may_wait=may_wait,
        ),
        body_bytes=10,
        request_id=REQUEST_ID,
        principal=Principal(tenant=TenantId("dev"), token_id="tok_1", scopes=frozenset({"run"})),
        offer=an_offer(),
        nodes=Nodes([node]),
        span=RequestSpan(
            NoOpTracer(), headers={}, method="POST", route="/", server=None, request_id=REQUEST_ID
        ),
        threads=anyio.CapacityLimiter(1),
        ledger=books,
        limiter=books,
    )


async def run(generation: Generation) -> list[list[Event]]:
    """Return the events of each answer."""
    emitted: dict[int, list[Event]] = defaultdict(list)

    async def emit(events: Sequence[Event], choice: int) -> None:
        emitted[choice].extend(events)

    last = await generation.run(emit, response_id="r")
    return [[*emitted[choice], *events] for choice, events in enumerate(last)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, ContentDelta))


@pytest.mark.asyncio
async def test_each_answer_is_a_sequence_with_a_seed_of_its_own() -> None:
    node = FakeTokenSource("ab", END)

    choices = await run(a_generation(node, 3))

    assert [text_of(events) for events in choices] == ["ab"] * 3
    assert [s.request_id for s in node.submits] == [REQUEST_ID, "request-1#1", "request-1#2"]
    seeds = [submit.sampling.seed for submit in node.submits]
    assert seeds[0] == 5, "what the request says, as for one answer"
    assert len(set(seeds)) == 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert all(submit.token_ids == list(map(ord, PROMPT)) for submit in node.submits)


@pytest.mark.asyncio
async def test_the_same_request_has_the_same_seeds_again() -> None:
    first, again = FakeTokenSource(END), FakeTokenSource(END)
    await run(a_generation(first, 8))
    await run(a_generation(again, 8))
    seeds = [[submit.sampling.seed for submit in node.submits] for node in (first, again)]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 8


@pytest.mark.asyncio
async def test_others_begin_when_the_first_has_a_token() -> None:
    gate = anyio.Event()
    node = FakeTokenSource(gate, "a", END)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: run(a_generation(node, 2)))
        await anyio.wait_all_tasks_blocked()
        assert len(node.submits) == 1
        gate.set()
    assert len(node.submits) == 2


@pytest.mark.asyncio
async def test_a_request_is_one_in_the_ledger_and_within_the_limits() -> None:
    books = Books()
    node = FakeTokenSource("ab", f"c{END}", cached_tokens=4)

    choices = await run(a_generation(node, 3, books=books, max_tokens=50))

    usage = Usage(prompt_tokens=len(PROMPT), completion_tokens=12, cached_tokens=4)
    assert [events[-1] for events in choices] == [Finish(FinishReason.STOP, usage)] * 3
    assert len(books.openings) == 1
    assert books.outcomes == [(usage, "stop")]
    [admission] = books.admissions
    assert (admission.prompt_tokens, admission.max_tokens) == (len(PROMPT), 50)
    assert admission.num_answers == 3
    assert books.used == [len(PROMPT) + 12]


@pytest.mark.asyncio
async def test_what_a_client_has_grows_by_what_is_sent_of_each_answer() -> None:
    books = Books()

    await run(a_generation(FakeTokenSource("ab", "c", END), 2, books=books))

    counts = [usage.completion_tokens for usage in books.delivered_so_far]
    assert counts == sorted(counts)
    # ends without text are told of when all is recorded
    assert counts[-1] == 6


@pytest.mark.asyncio
async def test_no_answer_is_told_to_be_whole_before_all_are_and_that_is_recorded() -> None:
    books = Books()
    generation = a_generation(FakeTokenSource("a", END), 2, books=books)

    async def emit(events: Sequence[Event], choice: int) -> None:
        assert books.is_open
        assert not any(isinstance(event, Finish) for event in events)

    last = await generation.run(emit, response_id="r")

    assert not books.is_open
    assert [[type(event) for event in events] for events in last] == [[Finish], [Finish]]


class FailsLater(FakeTokenSource):
    """Fails all sequences but the first."""

    def __init__(self, *errors: TenantryError | None) -> None:
        super().__init__("a", anyio.Event())
        self._errors = errors

    def _steps(self) -> Any:
        number = len(self.submits) - 1
        error = self._errors[number] if number < len(self._errors) else None
        if error is not None:
            return enumerate([error])
        return enumerate(["a", *([] if number else [anyio.Event()])])


@pytest.mark.asyncio
async def test_when_one_fails_all_end() -> None:
    node = FailsLater(None, GenerationFailed("no luck"), GenerationFailed("no luck"))

    with anyio.fail_after(10), pytest.raises(GenerationFailed, match="no luck"):
        await run(a_generation(node, 2))

    assert node.num_open == 0
    assert node.cancelled.is_set()


@pytest.mark.asyncio
async def test_a_node_that_is_full_by_then_is_waited_for() -> None:
    node = FakeTokenSource("a", END)
    refusing = [CapacityExceeded()]
    run_script = node._run

    async def _run(submit: Submit, has_finished: list[bool]) -> Any:
        if submit.request_id != REQUEST_ID and refusing:
            raise refusing.pop()
        async for tokens in run_script(submit, has_finished):
            yield tokens

    node._run = _run  # type: ignore[method-assign]  # refuses once, what the script cannot

    choices = await run(a_generation(node, 2, may_wait=False))

    assert [text_of(events) for events in choices] == ["a", "a"]
    assert [submit.may_wait for submit in node.submits] == [False, True, True]


@pytest.mark.asyncio
async def test_answers_of_an_engine_are_what_each_seed_gives_alone() -> None:
    # control tokens but the one that ends it, and all that the decoder has beyond
    banned = tuple((ord(char), -100.0) for char in "\x00\x02\x03\x04\x05")
    vocabulary = 128
    sampling: dict[str, Any] = {
        "temperature": 0.9,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.1,
        "logit_bias": (*banned, (ord("x"), 2.0)),
        "top_logprobs": 4,
        "max_tokens": 80,
        "top_p": 1.0,
    }
    decoder = FakeDecoder(FakeConfig(vocab_size=vocabulary))
    # pages for two of the four at a time: the others wait, and some are preempted
    node = EngineSource(an_engine(models=[KIMI.id], decoder=decoder, num_pages=5))
    books = Books()

    with anyio.fail_after(30):
        choices = await run(a_generation(node, 4, books=books, **sampling))

    submits = {submit.request_id: submit for submit in node.submits}
    assert len(submits) == 4
    num_tokens = 0
    for events, submit in zip(choices, submits.values(), strict=True):
        alone = a_submit(
            prompt=submit.token_ids,
            max_tokens=80,
            sampling=submit.sampling,
            stop_token_ids=(ord(END),),
        )
        expected = expected_answer(alone, vocabulary)
        num_tokens += len(expected)
        assert text_of(events) == "".join(map(chr, expected)).removesuffix(END)
        told = [e for event in events if isinstance(event, LogprobsDelta) for e in event.entries]
        assert_likelihoods(told, alone, expected, vocabulary)
    assert books.outcomes[0][0].completion_tokens == num_tokens
    assert len({text_of(events) for events in choices}) == 4
