"""The asynchronous client: a thin loop that sends, waits and tries again; all else does no I/O."""

# `timeout` limits a silence of the server, not the whole call, as a cancel scope would

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack, overload

import anyio
import httpx

from ._batch import AsyncBatch
from ._mock import configure_for
from ._request import DEFAULT_TIMEOUT_S, LIMITS, Call, Calls, Inputs, RunOptions
from ._response import (
    answer_error,
    is_expected,
    parse_page,
    parse_result,
    transport_error,
)
from ._results import BatchPoll, BatchTicket, Completion, Coverage, Model
from ._retry import DEFAULT_MAX_RETRIES, RetryPolicy
from ._stream import AsyncParsedStream, AsyncStream

ParsedT = TypeVar("ParsedT")


class AsyncAI:
    """The models of one account, for asynchronous code.

        from tenantry import AsyncAI

        async with AsyncAI() as ai:
            answer = await ai.run("kimi-k2.6", {"prompt": "What is 17 + 25?"})
            print(answer.text)

    Everything is as in `AI`, with `await`. A cancelled call ends the generation on the server.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        account_id: str | None = None,
        api_token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        max_retries: int = DEFAULT_MAX_RETRIES,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        config = configure_for(transport, base_url, account_id, api_token)
        self._calls = Calls(config=config, timeout=timeout)
        self._retries = RetryPolicy(max_retries=max_retries)
        self._sleep = sleep
        self._http = httpx.AsyncClient(
            transport=transport,
            limits=LIMITS,
            # loading the certificates takes longer than a short answer on this machine
            verify=config.uses_tls,
            # a proxy does not lead back to this machine
            trust_env=not config.is_loopback,
        )

    def __repr__(self) -> str:
        return f"AsyncAI({self._calls.config!r})"

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[False] | None = None,
        response_format: None = None,
        **options: Unpack[RunOptions],
    ) -> Completion: ...

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[False] | None = None,
        response_format: type[ParsedT],
        **options: Unpack[RunOptions],
    ) -> ParsedT: ...

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[True],
        response_format: None = None,
        **options: Unpack[RunOptions],
    ) -> AsyncStream: ...

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[True],
        response_format: type[ParsedT],
        **options: Unpack[RunOptions],
    ) -> AsyncParsedStream[ParsedT]: ...

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None,
        response_format: None = None,
        **options: Unpack[RunOptions],
    ) -> Completion | AsyncStream: ...

    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None = None,
        response_format: type[ParsedT] | None = None,
        **options: Unpack[RunOptions],
    ) -> Completion | ParsedT | AsyncStream:
        """Ask a model; with `stream=True`, get the answer piece by piece. See `AI.run`."""
        call = self._calls.run(
            model, inputs, stream=stream, response_format=response_format, **options
        )
        response = await self._send(call)
        if call.is_stream:
            if response_format is None:
                return AsyncStream(response)
            return AsyncParsedStream(response, response_format)
        completion = parse_result(response, Completion)
        return completion if response_format is None else completion.parse(response_format)

    async def batch(self, model: str, requests: Sequence[Inputs]) -> AsyncBatch:
        """Queue requests, each with the inputs of one `run`, to be computed in spare capacity.

        `external_reference` among a request's inputs comes back with its answer.
        """
        ticket = parse_result(await self._send(self._calls.submit(model, requests)), BatchTicket)
        return self.open_batch(model, ticket.request_id)

    def open_batch(self, model: str, request_id: str) -> AsyncBatch:
        """Take up a batch again that was submitted before; sends nothing."""

        async def poll() -> BatchPoll:
            return parse_result(await self._send(self._calls.poll(model, request_id)), BatchPoll)

        return AsyncBatch(model, request_id, poll=poll, sleep=self._sleep)

    async def models(self) -> list[Model]:
        """List the models on offer."""
        models: list[Model] = []
        for page_number in count(1):
            page = parse_page(await self._send(self._calls.models(page_number)))
            models += page.result
            if page.is_last(len(models)):
                break
        return models

    async def coverage(self) -> Coverage:
        """Say which uses of cache pages are checked, on every node."""
        return parse_result(await self._send(self._calls.coverage()), Coverage)

    async def aclose(self) -> None:
        """Close the connections; streams that are still open break."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _send(self, call: Call) -> httpx.Response:
        """Return an answer that succeeded: whole, or about to stream."""
        num_retries = 0
        while True:
            response: httpx.Response | None = None
            try:
                response = await self._http.send(call.build(), stream=call.is_stream)
                if is_expected(response, call):
                    return response
                await response.aread()
                error = answer_error(response)
            except httpx.RequestError as cause:
                error = transport_error(cause, self._calls.config.base_url)
                error.__cause__ = cause
            wait_s = self._retries.wait_s(error, response, num_retries=num_retries)
            if wait_s is None or call.ends_with(error):
                raise error
            await self._sleep(wait_s)
            num_retries += 1
