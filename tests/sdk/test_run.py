"""Calls, answers and failures, the same for both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import tenantry
from support.answers import a_completion, a_model, an_envelope, an_error
from support.callers import KINDS, Kind, a_caller
from tenantry import TenantryError

pytestmark = [pytest.mark.asyncio, pytest.mark.parametrize("kind", KINDS)]

PROMPT = {"prompt": "What is 17 + 25?"}


def in_turn(*answers: httpx.Response | Exception) -> Callable[[httpx.Request], httpx.Response]:
    """Answer the first call with the first, and so on; a call too many fails."""
    remaining: Iterator[httpx.Response | Exception] = iter(answers)

    def handler(request: httpx.Request) -> httpx.Response:
        answer = next(remaining, None)
        assert answer is not None, "a call too many"
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handler


async def test_an_answer_comes_out_of_its_envelope(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_envelope(a_completion("42"))))
    assert (await caller.run("kimi-k2.6", PROMPT)).text == "42"


async def test_an_error_carries_what_the_server_said(kind: Kind) -> None:
    answer = an_error(
        400, 5007, "No such model kimi; did you mean kimi-k2.6?", x_request_id="req-7"
    )
    caller = a_caller(kind, in_turn(answer))
    with pytest.raises(tenantry.UnknownModel) as caught:
        await caller.run("kimi", PROMPT)
    error = caught.value
    assert error.message == "No such model kimi; did you mean kimi-k2.6?"
    assert (error.status, error.code, error.request_id) == (400, 5007, "req-7")


async def test_an_error_that_stays_is_raised_after_two_more_tries(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(*[an_error(429, 3040, retry_after="2") for _ in range(3)]))
    with pytest.raises(tenantry.CapacityExceeded) as caught:
        await caller.run("kimi-k2.6", PROMPT)
    assert caller.waits_s == [2.0, 2.0]
    assert caught.value.retry_after == 2.0


@pytest.mark.parametrize(
    ("code", "wait_s", "raised"),
    [(3036, 43_200, tenantry.QuotaExceeded), (3021, 61, tenantry.RateLimited)],
)
async def test_an_error_that_stays_for_long_is_raised_at_once(
    kind: Kind, code: int, wait_s: int, raised: type[tenantry.TenantryError]
) -> None:
    caller = a_caller(kind, in_turn(an_error(429, code, retry_after=str(wait_s))))
    with pytest.raises(raised) as caught:
        await caller.run("kimi-k2.6", PROMPT)
    assert caller.waits_s == []
    assert caught.value.retry_after == wait_s


async def test_an_answer_after_failures_is_an_answer(kind: Kind) -> None:
    lost = httpx.RemoteProtocolError("Server disconnected")
    caller = a_caller(kind, in_turn(an_error(503), lost, an_envelope(a_completion("42"))))
    assert (await caller.run("kimi-k2.6", PROMPT)).text == "42"
    first_s, second_s = caller.waits_s
    assert 0.375 <= first_s <= 0.5
    assert 0.75 <= second_s <= 1.0


async def test_a_stream_that_did_not_begin_is_tried_again(kind: Kind) -> None:
    def handler(request: httpx.Request) -> httpx.Response | str:
        return an_error(500) if not caller.waits_s else "four words of text"

    caller = a_caller(kind, handler)  # type: ignore[arg-type]  # the mock takes text too
    chunks = await caller.stream("kimi-k2.6", PROMPT)
    assert "".join(chunk.text for chunk in chunks) == "four words of text"
    assert len(caller.waits_s) == 1


async def test_who_rejects_waiting_is_told_at_once_of_a_full_queue(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_error(429, 3040, retry_after="1")))
    with pytest.raises(tenantry.CapacityExceeded):
        await caller.run("kimi-k2.6", PROMPT, reject_if_busy=True)
    assert caller.waits_s == []


async def test_no_retries_means_none(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_error(503)), max_retries=0)
    with pytest.raises(tenantry.ServerError):
        await caller.run("kimi-k2.6", PROMPT)
    assert caller.waits_s == []


@pytest.mark.parametrize(
    ("failure", "expected", "num_waits"),
    [
        (httpx.ConnectError("refused"), tenantry.ConnectionFailed, 2),
        (httpx.ConnectTimeout("slow"), tenantry.ConnectionFailed, 2),
        (httpx.ReadError("reset"), tenantry.ConnectionFailed, 2),
        (httpx.ReadTimeout("silent"), tenantry.RequestTimeout, 0),
        (httpx.PoolTimeout("busy"), tenantry.RequestTimeout, 0),
        (httpx.DecodingError("no gzip"), tenantry.InvalidResponse, 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_what_the_transport_meets_has_a_type_and_keeps_its_cause(
    kind: Kind, failure: httpx.RequestError, expected: type[TenantryError], num_waits: int
) -> None:
    caller = a_caller(kind, in_turn(*[failure] * 3))
    with pytest.raises(expected, match=r"mock\.invalid") as caught:
        await caller.run("kimi-k2.6", PROMPT)
    assert caught.value.__cause__ is failure
    assert len(caller.waits_s) == num_waits


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        ((200, {"text": "<html>hi</html>"}), tenantry.InvalidResponse, "<html>hi</html>"),
        ((200, {}), tenantry.InvalidResponse, "an empty body"),
        ((200, {"json": [1]}), tenantry.InvalidResponse, "HTTP 200"),
        ((200, {"json": {}}), tenantry.InvalidResponse, "null"),
        ((404, {"text": "nginx"}), tenantry.NotFound, "HTTP 404: 'nginx'"),
        ((413, {"text": "x" * 9999}), tenantry.TooLarge, "x" * 200 + "'"),
        ((307, {"headers": {"location": "/"}}), tenantry.APIError, "HTTP 307"),
        ((400, {"json": {"errors": None}}), tenantry.InvalidInput, "HTTP 400"),
        (
            (200, {"json": {"success": False, "errors": [{"code": 3040, "message": "f"}]}}),
            tenantry.CapacityExceeded,
            "f",
        ),
        (
            (401, {"json": {"error": {"message": "who?", "code": "invalid_api_key"}}}),
            tenantry.AuthenticationError,
            "who\\?",
        ),
        (
            (400, {"json": {"errors": [{"message": "a"}, {"code": 5006, "message": "b"}]}}),
            tenantry.InvalidInput,
            "a; b",
        ),
    ],
)
async def test_other_answers_become_errors_that_show_them(
    kind: Kind, answer: tuple[int, dict[str, Any]], expected: type[TenantryError], words: str
) -> None:
    status, body = answer
    caller = a_caller(kind, in_turn(httpx.Response(status, **body)))
    with pytest.raises(expected, match=words):
        await caller.run("kimi-k2.6", PROMPT)


async def test_json_in_place_of_a_stream_is_an_error(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_envelope(a_completion())))
    with pytest.raises(tenantry.InvalidResponse):
        await caller.stream("kimi-k2.6", PROMPT)


async def test_models_are_listed_page_by_page(kind: Kind) -> None:
    names = [f"@cf/some/model-{number}" for number in range(3)]

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.method == "GET"
        assert request.url.path == "/client/v4/accounts/mock/ai/models/search"
        page = int(request.url.params["page"])
        found = [a_model(name) for name in names[(page - 1) * 2 : page * 2]]
        return an_envelope(found, result_info={"page": page, "per_page": 2, "total_count": 3})

    models = await a_caller(kind, handler).models()
    assert [model.name for model in models] == names
    assert models[0].task.name == "Text Generation"


async def test_a_list_without_a_total_ends_with_a_page_that_is_not_full(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_envelope([a_model()])))
    assert len(await caller.models()) == 1


async def test_an_empty_list_is_a_list(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_envelope([], result_info={"total_count": 7})))
    assert await caller.models() == []


async def test_listing_models_fails_like_any_call(kind: Kind) -> None:
    caller = a_caller(kind, in_turn(an_error(401, 10000, "Authentication error")))
    with pytest.raises(tenantry.AuthenticationError):
        await caller.models()
