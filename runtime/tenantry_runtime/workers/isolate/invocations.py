"""What the runtime knows of invocations that an isolate has begun and not finished."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any

from tenantry_runtime.workers.interface import ByteStream

from .interface import Attendant, NeverBegan, Violation
from .streams import Received, Source


class State(Enum):
    """Of the handler, as the isolate told it."""

    RUNNING = auto()
    """It has not answered."""
    ANSWERING = auto()
    """Its response has begun, and its body is on its way."""
    OVER = auto()
    """It has answered or failed; `wait_until` may still run."""


class Opened:
    """An invocation that has begun."""

    __slots__ = (
        "answer",
        "attendant",
        "body",
        "calls",
        "has_failed",
        "has_never_ended",
        "is_fetch",
        "is_left",
        "num_lines",
        "number",
        "passed",
        "position",
        "sources",
        "state",
    )

    def __init__(
        self, number: int, attendant: Attendant, answer: asyncio.Future[Any], *, is_fetch: bool
    ) -> None:
        self.number = number
        self.attendant = attendant
        self.answer = answer
        """The response, or what a method returned; whoever waits for it may have gone."""
        self.is_fetch = is_fetch
        self.position = 0
        """Of its first byte in what the isolate was sent."""
        self.state = State.RUNNING
        self.num_lines = 0
        """That it has logged."""
        self.is_left = False
        """Whether nobody waits for it any more."""
        self.has_failed = False
        self.has_never_ended = False
        self.body: Received | None = None
        """Of the response, if the isolate makes it."""
        self.passed: ByteStream | None = None
        """Of the response, if the runtime has it: closed by whoever leaves the invocation."""
        self.sources: set[Source] = set()
        self.calls: set[int] = set()

    @property
    def is_unheard(self) -> bool:
        """Whether the isolate has said nothing of it."""
        has_said = self.num_lines or self.calls or any(each.has_begun for each in self.sources)
        return self.state is State.RUNNING and not has_said

    def give_back(self, error: NeverBegan) -> None:
        """End it unbegun, with the streams that were to be its own."""
        for source in list(self.sources):
            source.take()
        self.state = State.OVER
        if not self.answer.done():
            self.answer.set_exception(error)

    def answered(self, value: object, *, by: str) -> None:
        """Take the answer. Raises `Violation` for a second one."""
        if self.state is not State.RUNNING:
            raise Violation(f"{by} for invocation {self.number}, which was answered before")
        self.state = State.OVER if self.body is None else State.ANSWERING
        if not self.answer.done():
            self.answer.set_result(value)

    def fail(self, error: Exception) -> None:
        """End it for whoever waits for its answer or its body."""
        self.state = State.OVER
        if not self.answer.done():
            self.answer.set_exception(error)
        if self.body is not None:
            self.body.fail(error)
