"""The blocking client: a thin loop that sends, waits and tries again; all else does no I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Literal, Self, TypeVar, Unpack, overload

import httpx

from ._batch import Batch
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
from ._stream import ParsedStream, Stream

ParsedT = TypeVar("ParsedT")


class AI:
    """The models of one account.

        from tenantry import AI

        with AI() as ai:
            print(ai.run("kimi-k2.6", {"prompt": "What is 17 + 25?"}).text)

    `base_url`, `account_id` and `api_token` come from the arguments, else from `TENANTRY_BASE_URL`,
    `TENANTRY_ACCOUNT_ID` and `TENANTRY_API_TOKEN`, else from what `workerctl dev` left in the user's
    configuration directory; `ConfigurationError` says what is missing.

    `timeout` is the longest silence of the server in seconds, not the length of a call; 600 unless
    given, `math.inf` for no limit. Connecting takes at most 5. `max_retries` tries again after what
    a moment may cure: no connection, 408, 409, 429, 500 and above; never once a stream has begun.
    `transport` replaces the network, for tests: see `MockTransport`. `sleep` waits between tries.

    One client may serve many threads; each stream belongs to one of them.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        account_id: str | None = None,
        api_token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        max_retries: int = DEFAULT_MAX_RETRIES,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        config = configure_for(transport, base_url, account_id, api_token)
        self._calls = Calls(config=config, timeout=timeout)
        self._retries = RetryPolicy(max_retries=max_retries)
        self._sleep = sleep
        self._http = httpx.Client(
            transport=transport,
            limits=LIMITS,
            # loading the certificates takes longer than a short answer on this machine
            verify=config.uses_tls,
            # a proxy does not lead back to this machine
            trust_env=not config.is_loopback,
        )

    def __repr__(self) -> str:
        return f"AI({self._calls.config!r})"

    @overload
    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[False] | None = None,
        response_format: None = None,
        **options: Unpack[RunOptions],
    ) -> Completion: ...

    @overload
    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[False] | None = None,
        response_format: type[ParsedT],
        **options: Unpack[RunOptions],
    ) -> ParsedT: ...

    @overload
    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[True],
        response_format: None = None,
        **options: Unpack[RunOptions],
    ) -> Stream: ...

    @overload
    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: Literal[True],
        response_format: type[ParsedT],
        **options: Unpack[RunOptions],
    ) -> ParsedStream[ParsedT]: ...

    @overload
    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None,
        response_format: None = None,
        **options: Unpack[RunOptions],
    ) -> Completion | Stream: ...

    def run(
        self,
        model: str,
        inputs: Inputs,
        *,
        stream: bool | None = None,
        response_format: type[ParsedT] | None = None,
        **options: Unpack[RunOptions],
    ) -> Completion | ParsedT | Stream:
        """Ask a model; with `stream=True`, get the answer piece by piece.

        `inputs` holds `prompt` or `messages`, and whatever else the model takes: `max_completion_tokens`,
        `temperature`, `tool_choice`, `n`, `logprobs`, ... Among its `tools` may stand functions (see
        `tool`), among its `messages` what earlier answers and tools returned.

        `response_format` is the type of the answer, such as a msgspec Struct: the model writes JSON
        of that type, and `run` returns an instance, or raises `AnswerCut` where a limit ended it.
        `inputs["response_format"]` may name a type too, or be what the server takes; then the
        `Completion` is returned, which has `parse`.

        `session`: requests that name the same are sent where the computation of their common
        beginning is kept. `reject_if_busy=True`: fail with `CapacityExceeded` at once, rather than
        wait in the server's queue. `timeout` replaces the client's, for this call.
        `inputs["stream"]` works too, but type checkers see the argument alone.
        """
        call = self._calls.run(
            model, inputs, stream=stream, response_format=response_format, **options
        )
        response = self._send(call)
        if call.is_stream:
            if response_format is None:
                return Stream(response)
            return ParsedStream(response, response_format)
        completion = parse_result(response, Completion)
        return completion if response_format is None else completion.parse(response_format)

    def batch(self, model: str, requests: Sequence[Inputs]) -> Batch:
        """Queue requests, each with the inputs of one `run`, to be computed in spare capacity.

        `external_reference` among a request's inputs comes back with its answer.
        """
        ticket = parse_result(self._send(self._calls.submit(model, requests)), BatchTicket)
        return self.open_batch(model, ticket.request_id)

    def open_batch(self, model: str, request_id: str) -> Batch:
        """Take up a batch again that was submitted before; sends nothing."""

        def poll() -> BatchPoll:
            return parse_result(self._send(self._calls.poll(model, request_id)), BatchPoll)

        return Batch(model, request_id, poll=poll, sleep=self._sleep)

    def models(self) -> list[Model]:
        """List the models on offer."""
        models: list[Model] = []
        for page_number in count(1):
            page = parse_page(self._send(self._calls.models(page_number)))
            models += page.result
            if page.is_last(len(models)):
                break
        return models

    def coverage(self) -> Coverage:
        """Say which uses of cache pages are checked, on every node."""
        return parse_result(self._send(self._calls.coverage()), Coverage)

    def close(self) -> None:
        """Close the connections; streams that are still open break."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, call: Call) -> httpx.Response:
        """Return an answer that succeeded: whole, or about to stream."""
        num_retries = 0
        while True:
            response: httpx.Response | None = None
            try:
                response = self._http.send(call.build(), stream=call.is_stream)
                if is_expected(response, call):
                    return response
                response.read()
                error = answer_error(response)
            except httpx.RequestError as cause:
                error = transport_error(cause, self._calls.config.base_url)
                error.__cause__ = cause
            wait_s = self._retries.wait_s(error, response, num_retries=num_retries)
            if wait_s is None or call.ends_with(error):
                raise error
            self._sleep(wait_s)
            num_retries += 1
