"""The answers to one request, side by side, with one account of what they come to.

The first is asked for at once, the others when it has its first token: by then the pages of the prompt
are there for all of them to begin with. When one fails, all end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b

import anyio

from tenantry_runtime.core import Event, Finish, FinishReason, Usage
from tenantry_runtime.pool.messages import SequenceTokens

from .answer import Answer

RunChoice = Callable[[int], Awaitable[None]]
"""Sees one answer to its end."""


class Choices:
    """What is known of a request's answers."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = tuple(answers)
        self._delivered = [answer.usage for answer in answers]
        self._has_begun = anyio.Event()
        self._endings: list[list[Event]] = []

    @property
    def usage(self) -> Usage:
        """Tokens so far: the prompt's once, those of all the answers."""
        return _together([answer.usage for answer in self.answers])

    @property
    def reasons(self) -> tuple[FinishReason, ...]:
        """Of answers that are all whole."""
        reasons = tuple(answer.reason for answer in self.answers if answer.reason is not None)
        assert len(reasons) == len(self.answers), "an answer is not whole"
        return reasons

    def take(self, index: int, tokens: SequenceTokens) -> list[Event]:
        """Take tokens of one answer; return what of it may be told now.

        Not that it has ended: that is told when all have, with the usage of all, which by then is
        recorded. What the only answer ends with is kept together.
        """
        self._has_begun.set()
        events = self.answers[index].take(tokens)
        if self.answers[index].reason is None:
            return events
        if len(self.answers) == 1:
            self._endings = [events]
            return []
        *events, _ = events
        return events

    def deliver(self, index: int) -> Usage:
        """Return what the client has once it has all of one answer's events so far."""
        self._delivered[index] = self.answers[index].usage
        return _together(self._delivered)

    def endings(self) -> Sequence[Sequence[Event]]:
        """Return what is left to tell of each answer when all are whole."""
        if len(self.answers) == 1:
            return self._endings
        usage = self.usage
        return [[Finish(reason=reason, usage=usage)] for reason in self.reasons]

    async def run(self, run_choice: RunChoice) -> None:
        """Run all to their end; raise what the first that fails has failed with."""
        if len(self.answers) == 1:
            await run_choice(0)
            return
        problems: list[Exception] = []

        async def run_one(index: int) -> None:
            try:
                if index:
                    await self._has_begun.wait()
                await run_choice(index)
            except Exception as problem:
                # out of the group as it is, not wrapped in an exception group
                problems.append(problem)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for index in range(len(self.answers)):
                tasks.start_soon(run_one, index)
        if problems:
            raise problems[0]


def name_of(request_id: str, index: int) -> str:
    """Return what nodes know an answer's sequence by; the first has the request's own name."""
    return f"{request_id}#{index}" if index else request_id


def seed_of(seed: int, index: int) -> int:
    """Return an answer's seed; the first has the request's own, and so is what it would be alone."""
    if not index:
        return seed
    digest = blake2b(b"%d %d" % (seed, index), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _together(usages: Sequence[Usage]) -> Usage:
    if len(usages) == 1:
        return usages[0]
    return Usage(
        prompt_tokens=usages[0].prompt_tokens,
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        # all say the same once they have begun: what was found when the prompt was first computed
        cached_tokens=max(usage.cached_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )
