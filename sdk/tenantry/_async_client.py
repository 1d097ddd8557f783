"""The asynchronous client: a thin loop that sends, waits and tries again; all else does no I/O."""

# `timeout` limits a silence of the server, not the whole call, as a cancel scope would
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from types import TracebackType
from typing import Literal, Self, overload

import anyio
import httpx

from ._mock import configure_for
from ._request import DEFAULT_TIMEOUT_S, LIMITS, Call, Calls, Inputs
from ._response import (
    answer_error,
    is_expected,
    parse_page,
    parse_result,
    transport_error,
)
from ._results import Completion, Coverage, Model
from ._retry import DEFAULT_MAX_RETRIES, RetryPolicy
from ._stream import AsyncStream


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
        session: str | None = None,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> Completion: ...

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[True],
        session: str | None = None,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> AsyncStream: ...

    @overload
    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None,
        session: str | None = None,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> Completion | AsyncStream: ...

    async def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None = None,
        session: str | None = None,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> Completion | AsyncStream:
        """Ask a model; with `stream=True`, get the answer piece by piece.

        `inputs` holds `prompt` or `messages`, and whatever else the model takes: `max_tokens`,
        `temperature`, `tools`, ... Requests with the same `session` are sent where the computation
        of their common beginning is kept. `timeout` replaces the client's, for this call.
        `inputs["stream"]` works too, but type checkers see the argument alone.
        """
        call = self._calls.run(
            model,
            inputs,
            stream=stream,
            session=session,
            timeout=timeout,
            extra_headers=extra_headers,
        )
        response = await self._send(call)
        return AsyncStream(response) if call.is_stream else parse_result(response, Completion)

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
            if wait_s is None:
                raise error
            await self._sleep(wait_s)
            num_retries += 1
