"""One request's sequence, whatever members it comes to run on.

| what happens | then |
|---|---|
| a member fails or refuses it before its first token | once more, on another member, if the retry budget allows |
| a member fails it after its first token | the error comes out |
| a node preempts it | prompt and output so far are submitted again, as often as that brings tokens |
| all nodes are full then | again after a while, for some seconds |

Noise is a function of seed and position, so that it goes on as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TypeAlias

import anyio
import msgspec

from tenantry_runtime.core import PAGE_TOKENS
from tenantry_runtime.errors import (
    CacheIntegrityError,
    CapacityExceeded,
    GenerationFailed,
    HandoffFailed,
    NodeUnavailable,
)
from tenantry_runtime.pool.interface import SequencePreempted
from tenantry_runtime.pool.messages import SequenceTokens, Submit
from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.placement import Asked, Placement
from tenantry_runtime.telemetry import Journey

from . import journeys
from .attempt import Attempt, Note, Take
from .nodes import Nodes
from .trail import Trail

MAX_FRUITLESS = 6
"""Preemptions in a row without a token in between; one more, and the request fails."""

FRUITLESS = "preempted again and again without a new token in between"

FIRST_PAUSE_S = 0.25
"""Before a preempted sequence is submitted to full nodes again. The pauses double: eight seconds in all."""

Failure: TypeAlias = GenerationFailed | NodeUnavailable | CapacityExceeded


class RequestSequence:
    """Runs a request to its end. All that it holds, it holds inside `run`."""

    def __init__(
        self,
        nodes: Nodes,
        asked: Asked,
        *,
        submit: Callable[[int], Submit],
        trail: Trail | None = None,
        first_pause_s: float = FIRST_PAUSE_S,
        is_let_in: bool = False,
        journey: Journey | None = None,
    ) -> None:
        """`submit` makes the message for a context of so many tokens.

        `is_let_in`: another sequence of its request runs already, and it waits for room as that would.
        `journey` is kept up to date.
        """
        self._nodes = nodes
        self._asked = asked
        self._make_submit = submit
        self._trail = trail or Trail()
        self._journey = journey or Journey()
        self._first_pause_s = first_pause_s
        self._output: list[int] = []
        self._has_retried = asked.is_again
        self._is_let_in = is_let_in
        self._max_tokens = 0
        self._num_fruitless = 0
        self._num_output_before = 0

    async def run(self, take: Take) -> tuple[Submit, list[int]]:
        """Pass on the tokens until there are enough; return what was asked at first, and all tokens.

        The first come with the request's cached tokens, whatever attempt they are of.
        """
        placement = self._place(self._asked)
        try:
            first = self._make_submit(self._context_tokens(placement))
        except BaseException:
            placement.end(self._nodes.now_s)
            raise
        self._max_tokens = first.max_tokens
        avoid: Collection[MemberId] = ()
        while True:
            self._trail.placement = placement
            journeys.meet(self._journey, placement)
            attempt = Attempt(
                self._nodes, placement, self._rest_of(first), avoid=avoid, journey=self._journey
            )
            try:
                await attempt.run(take, note=self._noting(attempt, placement))
                break
            except SequencePreempted:
                self._note_start(attempt)
                journeys.preempted(self._journey, len(self._output))
                self._is_let_in = True
                placement, avoid = await self._place_again(_fruitless(first)), ()
            except (GenerationFailed, NodeUnavailable, CapacityExceeded) as error:
                self._note_start(attempt)
                journeys.failed(self._journey, error)
                if self._is_let_in and isinstance(error, CapacityExceeded):
                    placement, avoid = await self._place_again(error), ()
                else:
                    placement, avoid = self._place_elsewhere(error, attempt.failed)
                    self._nodes.carried(first.request_id, attempt.failed[0])
        return first, self._output

    def _context_tokens(self, placement: Placement) -> int:
        return self._nodes.router.context_tokens(placement, self._asked.share)

    def _noting(self, attempt: Attempt, placement: Placement) -> Note:
        """Return what keeps account of an attempt's tokens: in this the time of every step is spent."""
        output = self._output
        num_before = next_account = len(output)

        def note(tokens: SequenceTokens) -> SequenceTokens:
            nonlocal next_account
            if not output:
                tokens = self._first(attempt, tokens)
            output.extend(tokens.token_ids)
            if len(output) >= next_account:
                placement.advance(len(output) - num_before)
                next_account = len(output) + PAGE_TOKENS
            return tokens

        return note

    def _first(self, attempt: Attempt, tokens: SequenceTokens) -> SequenceTokens:
        self._note_start(attempt)
        self._journey.has_token()
        if self._trail.cached_tokens is None:
            self._trail.cached_tokens = tokens.cached_tokens
        return msgspec.structs.replace(tokens, cached_tokens=self._trail.cached_tokens)

    def _note_start(self, attempt: Attempt) -> None:
        """Keep the first that is said of cached tokens: what is computed twice is billed once."""
        if self._trail.cached_tokens is None:
            self._trail.cached_tokens = attempt.cached_tokens

    def _rest_of(self, first: Submit) -> Submit:
        if not self._is_let_in:
            return first
        return msgspec.structs.replace(
            first,
            token_ids=[*first.token_ids, *self._output],
            num_generated=len(self._output),
            max_tokens=first.max_tokens - len(self._output),
            # it has had its turn, and goes on when it gets the next one
            may_wait=True,
            max_waiting=None,
        )

    def _asked_again(self) -> Asked:
        asked, num_output = self._asked, len(self._output)
        return replace(
            asked,
            num_tokens=asked.num_tokens + num_output,
            max_tokens=None if asked.max_tokens is None else asked.max_tokens - num_output,
            is_again=True,
        )

    async def _place_again(self, error: Failure) -> Placement:
        """Place what has been preempted; raise the error if that keeps bringing no tokens."""
        if len(self._output) >= self._max_tokens:
            raise GenerationFailed("preempted after the last token")
        is_fruitless = len(self._output) == self._num_output_before
        self._num_fruitless = self._num_fruitless + 1 if is_fruitless else 0
        self._num_output_before = len(self._output)
        if self._num_fruitless > MAX_FRUITLESS:
            raise error
        if self._num_fruitless > 1:
            await anyio.sleep(self._first_pause_s * 2 ** (self._num_fruitless - 2))
        return self._place(self._asked_again())

    def _place(self, asked: Asked, avoid: Collection[MemberId] = ()) -> Placement:
        with journeys.routing(self._journey, "prefill"):
            return self._nodes.place(asked, avoid=avoid)

    def _place_elsewhere(
        self, error: Failure, failed: tuple[MemberId, ...]
    ) -> tuple[Placement, Collection[MemberId]]:
        """Place the request once more and return what to avoid, or raise the error."""
        if self._output or self._has_retried or not failed:
            raise error
        self._has_retried = True
        for avoid in _to_avoid(error, failed):
            placement = self._place_avoiding(avoid)
            if placement is not None:
                break
        else:
            raise error
        if not self._nodes.router.may_retry(self._asked.tenant, failed[0]):
            placement.end(self._nodes.now_s)
            raise error
        journeys.retried(self._journey, error, failed)
        return placement, avoid

    def _place_avoiding(self, avoid: Collection[MemberId]) -> Placement | None:
        try:
            return self._place(self._asked_again(), avoid)
        except NodeUnavailable:
            return None


def _fruitless(submit: Submit) -> Failure:
    """Return what a request fails with that is preempted again and again."""
    # in the background that is how it goes while others have work
    return CapacityExceeded() if submit.is_background else GenerationFailed(FRUITLESS)


def _to_avoid(error: Failure, failed: tuple[MemberId, ...]) -> Iterator[tuple[MemberId, ...]]:
    """Yield what to avoid, then what to avoid where that leaves no members, and so on."""
    yield failed
    if isinstance(error, HandoffFailed):
        # one side of it was at fault, and nobody knows which
        yield from ((member,) for member in failed)
    if isinstance(error, HandoffFailed | CacheIntegrityError):
        # a page or a transfer went wrong, not the member: where there is no other, it may again
        yield ()
