"""A replay against a running system: requests go out at the trace's times, answers are timed.

At most so many requests are open at a time. One that comes due while all are taken is sent late;
how many were, and by how much, is part of the outcome: times are measured from the sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from tenantry import AsyncAI, TenantryError

from .measures import Measured
from .prompts import Prompts
from .workload import ReplayRequest

LATE_S = 0.1
"""A request that is sent so much after its time counts as late: no timer is off by that much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """Who is asked, and how hard."""

    model: str
    max_open: int = 256
    """Requests at a time."""

    def __post_init__(self) -> None:
        if self.max_open < 1:
            raise ValueError(f"max_open is {self.max_open}; it must be 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """What came of the requests."""

    requests: tuple[Measured, ...]
    """Those that were answered in full."""
    errors: Mapping[str, int]
    """How many of the others ended with which error of the SDK."""
    num_late: int
    latest_s: float
    """After its time, the one that was sent latest."""


class LiveReplay:
    """One replay. Canceling `run` cancels every request that is open."""

    def __init__(self, *, client: AsyncAI, prompts: Prompts, options: LiveOptions) -> None:
        """The client should not try again by itself: a failure is a result here."""
        self._client = client
        self._prompts = prompts
        self._options = options
        self._ended: list[Measured] = []
        self._errors: Counter[str] = Counter()
        self._num_late = 0
        self._latest_s = 0.0

    async def run(self, requests: Iterable[ReplayRequest]) -> LiveOutcome:
        """Send every request and wait for the last answer."""
        places = anyio.Semaphore(self._options.max_open)
        begin_s: float | None = None
        async with anyio.create_task_group() as tasks:
            for request in requests:
                text = self._prompts.text(request.trace)
                if begin_s is None:
                    begin_s = anyio.current_time() - request.trace.arrival_s
                due_s = begin_s + request.trace.arrival_s
                await anyio.sleep_until(due_s)
                await places.acquire()
                self._note_delay(anyio.current_time() - due_s)
                tasks.start_soon(self._send, request, text, places)
        return LiveOutcome(
            requests=tuple(self._ended),
            errors=dict(sorted(self._errors.items())),
            num_late=self._num_late,
            latest_s=self._latest_s,
        )

    def _note_delay(self, delay_s: float) -> None:
        self._num_late += delay_s > LATE_S
        self._latest_s = max(self._latest_s, delay_s)

    async def _send(self, request: ReplayRequest, text: str, places: anyio.Semaphore) -> None:
        try:
            self._ended.append(await self._ask(request, text))
        except TenantryError as error:
            self._errors[type(error).__name__] += 1
        finally:
            places.release()

    async def _ask(self, request: ReplayRequest, text: str) -> Measured:
        # Any: JSON of the model's inputs
        inputs: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": request.trace.num_output,
        }
        sent_s = anyio.current_time()
        first_token_s: float | None = None
        stream = await self._client.run(
            self._options.model, inputs, stream=True, session=request.session
        )
        async with stream:
            async for chunk in stream:
                if first_token_s is None and (chunk.text or chunk.reasoning or chunk.tool_calls):
                    first_token_s = anyio.current_time()
        last_token_s = anyio.current_time()
        usage = stream.usage
        if usage is None:
            raise NoUsage
        return Measured(
            number=request.trace.number,
            num_prompt=usage.prompt_tokens,
            num_cached=usage.prompt_tokens_details.cached_tokens,
            num_output=usage.completion_tokens,
            sent_s=sent_s,
            first_token_s=last_token_s if first_token_s is None else first_token_s,
            last_token_s=last_token_s,
        )


class NoUsage(TenantryError):
    """An answer came without its usage: what it cost is not known."""

    def __init__(self) -> None:
        super().__init__("the answer came without its usage")
