"""Batches: submitted, polled and waited for, the same with both clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import tenantry
from support.answers import a_completion, a_usage, an_envelope, an_error
from tenantry import AI, AsyncAI, BatchResult, MockTransport

REQUESTS = [{"prompt": "What is 17 + 25?", "external_reference": "sum"}, {"prompt": "Hello!"}]
TICKET = {"status": "queued", "model": "@cf/moonshotai/kimi-k2.6", "request_id": "b-7"}
DONE = {
    "responses": [
        {"id": 0, "result": a_completion("42"), "success": True, "external_reference": "sum"},
        {"id": 1, "success": False, "errors": [{"code": 5021, "message": "too long"}]},
    ],
    "usage": a_usage(),
}


class Server:
    """Says in turn what it is told to, and keeps what it was asked."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, httpx.Response) else an_envelope(reply)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def no_wait(seconds: float) -> None:
    """Do not wait."""


def an_ai(server: Server, *, sleep: Callable[[float], None] = no_wait) -> AI:
    return AI(transport=MockTransport(server), sleep=sleep)


def test_a_batch_is_submitted_and_polled_by_the_models_route() -> None:
    server = Server(TICKET, {"status": "queued"}, {"status": "running"}, DONE)
    batch = an_ai(server).batch("kimi-k2.6", REQUESTS)
    assert (batch.request_id, batch.status) == ("b-7", "queued")
    result = batch.wait()
    assert batch.status == "completed"
    assert {(r.method, r.url.path, r.url.query) for r in server.requests} == {
        ("POST", "/client/v4/accounts/mock/ai/run/kimi-k2.6", b"queueRequest=true")
    }
    assert server.bodies == [{"requests": REQUESTS}, *[{"request_id": "b-7"}] * 3]
    answered, failed = result.responses
    assert (answered.external_reference, answered.completion.text) == ("sum", "42")
    assert result.usage.total_tokens == 15
    with pytest.raises(tenantry.ContextExceeded, match=r"request 1 of the batch: too long"):
        failed.completion  # noqa: B018


@pytest.mark.asyncio
async def test_an_asynchronous_batch_is_the_same() -> None:
    server, waits = Server(TICKET, {"status": "running"}, DONE), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with AsyncAI(transport=MockTransport(server), sleep=sleep) as ai:
        batch = await ai.batch("kimi-k2.6", REQUESTS)
        assert await batch.poll() is None
        result = await batch.wait()
    assert isinstance(result, BatchResult)
    assert result.responses[0].completion.text == "42"
    assert waits == []


def test_a_batch_can_be_taken_up_again() -> None:
    server = Server(DONE)
    batch = an_ai(server).open_batch("kimi-k2.6", "b-7")
    assert server.requests == []
    polled = batch.poll()
    assert polled is not None
    assert polled["responses"][0]["id"] == 0


def test_polls_come_apart_and_end_with_the_timeout() -> None:
    waits: list[float] = []
    server = Server(*[{"status": "running"}] * 50)
    batch = an_ai(server, sleep=waits.append).open_batch("kimi-k2.6", "b-7")
    with pytest.raises(tenantry.RequestTimeout, match="still running after 100 s"):
        batch.wait(timeout=100)
    assert sum(waits) == pytest.approx(100)
    assert waits[:3] == [1.0, 1.5, 2.25]
    assert max(waits) <= 30
    assert len(server.requests) == len(waits) + 1


@pytest.mark.parametrize("lost", [httpx.RemoteProtocolError("lost"), an_error(500)])
def test_a_batch_that_may_have_arrived_is_not_submitted_again(lost: Any) -> None:
    server = Server(lost, TICKET)
    with pytest.raises(tenantry.TenantryError):
        an_ai(server).batch("kimi-k2.6", REQUESTS)
    assert len(server.requests) == 1


@pytest.mark.parametrize("refused", [httpx.ConnectError("refused"), an_error(429, 3040)])
def test_a_batch_that_did_not_arrive_is_submitted_again(refused: Any) -> None:
    server = Server(refused, TICKET)
    assert an_ai(server).batch("kimi-k2.6", REQUESTS).request_id == "b-7"


def test_a_poll_that_fails_is_made_again() -> None:
    server = Server(httpx.RemoteProtocolError("lost"), an_error(500), DONE)
    assert an_ai(server).open_batch("kimi-k2.6", "b-7").poll() is not None
