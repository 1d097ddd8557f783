"""Requests that wait for spare capacity: what is polled, and a handle for each client."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator

from ._results import BatchPoll, BatchResult
from .errors import RequestTimeout

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
"""A queue moves in minutes, so that half a minute more is little; a poll costs the server little too."""


def waits_s(timeout_s: float) -> Iterator[float]:
    """Say how long to wait between polls: longer and longer, `timeout_s` together."""
    wait_s, left_s = FIRST_WAIT_S, timeout_s
    while left_s > 0:
        yield min(wait_s, left_s)
        left_s -= wait_s
        wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)


class BatchHandle:
    """What both clients' batches say of themselves."""

    def __init__(self, model: str, request_id: str) -> None:
        self.model = model
        self.request_id = request_id
        self.status = "queued"

    model: str
    request_id: str
    """What the server calls the batch; with this, `ai.open_batch` finds it again."""
    status: str
    """At the last poll: `queued`, `running` or `completed`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {self.request_id!r}, {self.status})"

    def _take(self, polled: BatchPoll) -> BatchResult | None:
        if polled.responses is None:
            self.status = polled.status or self.status
            return None
        self.status = "completed"
        return BatchResult(responses=polled.responses, usage=polled.usage)

    def _not_done(self, timeout_s: float) -> RequestTimeout:
        return RequestTimeout(
            f"batch {self.request_id} is still {self.status} after {timeout_s:g} s; "
            "it goes on, and may be polled again"
        )


class Batch(BatchHandle):
    """A batch that was submitted. It outlives this process: keep `model` and `request_id`.

    batch = ai.batch("kimi-k2.6", [{"prompt": "What is 17 + 25?", "external_reference": "a"}])
    for response in batch.wait().responses:
        print(response.external_reference, response.completion.text)
    """

    def __init__(
        self,
        model: str,
        request_id: str,
        *,
        poll: Callable[[], BatchPoll],
        sleep: Callable[[float], None],
    ) -> None:
        super().__init__(model, request_id)
        self._poll = poll
        self._sleep = sleep

    def poll(self) -> BatchResult | None:
        """Ask once; None while it is not done."""
        return self._take(self._poll())

    def wait(self, timeout: float = math.inf) -> BatchResult:
        """Poll until it is done; `RequestTimeout` after `timeout` seconds of waiting."""
        result = self.poll()
        for wait_s in waits_s(timeout):
            if result is not None:
                break
            self._sleep(wait_s)
            result = self.poll()
        if result is None:
            raise self._not_done(timeout)
        return result


class AsyncBatch(BatchHandle):
    """A batch that was submitted. It outlives this process: keep `model` and `request_id`.

    batch = await ai.batch("kimi-k2.6", [{"prompt": "What is 17 + 25?"}])
    for response in (await batch.wait()).responses:
        print(response.completion.text)
    """

    def __init__(
        self,
        model: str,
        request_id: str,
        *,
        poll: Callable[[], Awaitable[BatchPoll]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        super().__init__(model, request_id)
        self._poll = poll
        self._sleep = sleep

    async def poll(self) -> BatchResult | None:
        """Ask once; None while it is not done."""
        return self._take(await self._poll())

    # `timeout` counts the waits between polls, not the calls, as a cancel scope would
    async def wait(self, timeout: float = math.inf) -> BatchResult:  # noqa: ASYNC109
        """Poll until it is done; `RequestTimeout` after `timeout` seconds of waiting."""
        result = await self.poll()
        for wait_s in waits_s(timeout):
            if result is not None:
                break
            await self._sleep(wait_s)
            result = await self.poll()
        if result is None:
            raise self._not_done(timeout)
        return result
