"""One attempt to run a request: the messages of its sequences, and who is to blame where it fails.

| placement | messages |
|---|---|
| whole | Submit; the node's tokens |
| two members | Submit of the prefill part; on Started, Submit of the decode part; on Reserved, Deliver; the decode node's tokens |

Until the first token has come, the failure of either member ends the attempt. After it the prefill
member has done its part, whatever it says. Nodes are told how much time the deadline around it leaves
to the first token, so that they do not work for a client that has given up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from math import inf

import anyio
from msgspec.structs import replace

from tenantry_runtime.core import Phase
from tenantry_runtime.errors import (
    CapacityExceeded,
    GenerationFailed,
    HandoffFailed,
    NodeUnavailable,
    ReaderTooSlow,
)
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.interface import RunningSequence
from tenantry_runtime.pool.messages import Deliver, SequenceTokens, Submit
from tenantry_runtime.routing.member import MemberId
from tenantry_runtime.routing.placement import Placement
from tenantry_runtime.telemetry import Journey

from . import journeys
from .nodes import Nodes

Take = Callable[[SequenceTokens], Awaitable[bool]]
"""Takes tokens, and says whether they are enough."""

Note = Callable[[SequenceTokens], SequenceTokens]
"""Sees tokens before they are taken, and returns them as they are to be taken."""

_OTHER: dict[Phase, Phase] = {"prefill": "decode", "decode": "prefill"}


class Attempt:
    """Owns the sequences of one placement; all that it holds, it holds inside `run`."""

    def __init__(
        self,
        nodes: Nodes,
        placement: Placement,
        submit: Submit,
        *,
        avoid: Collection[MemberId] = (),
        journey: Journey | None = None,
    ) -> None:
        self.cached_tokens: int | None = None
        """What the prefill member has said of them when it started; None: nothing."""
        self._nodes = nodes
        self._placement = placement
        self._submit = submit
        self._avoid = avoid
        self._journey = journey or Journey()
        self._bell = Bell()
        self._failed: tuple[Phase, ...] = ()
        self._is_to_blame = False
        self._is_handoff = False

    @property
    def failed(self) -> tuple[MemberId, ...]:
        """The members that have ended it, by failing or refusing it, the likeliest first."""
        placement = self._placement
        members = {"prefill": placement.prefill, "decode": placement.decode}
        return tuple(member for phase in self._failed if (member := members[phase]) is not None)

    async def run(self, take: Take, *, note: Note) -> None:
        """Run it until there are tokens enough.

        Leaving this in any way ends what still runs of it on either node. Raises what the nodes
        say, `SequencePreempted`, or `NodeUnavailable` where there is no member to decode on.
        """
        is_answered = False
        try:
            async with AsyncExitStack() as stack:
                if self._placement.is_whole:
                    sequence = await self._open_whole(stack)
                else:
                    sequence = await self._hand_over(stack)
                await self._read(sequence, take, note)
                is_answered = True
        finally:
            self._placement.end(
                self._nodes.now_s,
                is_answered=is_answered,
                blamed=self._failed if self._is_to_blame else (),
                is_handoff=self._is_handoff,
            )

    async def _open_whole(self, stack: AsyncExitStack) -> RunningSequence:
        return await self._open(stack, "prefill", self._placement.prefill, self._submit)

    async def _hand_over(self, stack: AsyncExitStack) -> RunningSequence:
        """Bring the prompt from member to member; return the decode part when it has tokens."""
        submit, placement = self._submit, self._placement
        source = await self._open(
            stack, "prefill", placement.prefill, replace(submit, part="prefill")
        )
        await self._until(lambda: source.started is not None, prefill=source)
        assert source.started is not None
        self.cached_tokens = source.started.cached_tokens

        with journeys.routing(self._journey, "decode"):
            member = self._nodes.place_decode(placement, avoid=self._avoid)
        journeys.meet(self._journey, placement)
        with journeys.reserving(self._journey) as noted:
            target = await self._open(stack, "decode", member, replace(submit, part="decode"))
            await self._until(lambda: target.target is not None, prefill=source, decode=target)
            assert target.target is not None
            journeys.reserved(noted, target.target)
        placement.reserve()

        address = self._nodes.address_for_nodes(member)
        source.deliver(Deliver(request_id=submit.request_id, address=address, target=target.target))
        await self._until(lambda: target.has_tokens, prefill=source, decode=target)
        return target

    async def _open(
        self, stack: AsyncExitStack, phase: Phase, member: MemberId, submit: Submit
    ) -> RunningSequence:
        # what its deadline leaves at the time that it is sent
        submit = replace(submit, first_token_within_ms=_time_left_ms())
        opened = self._nodes.at(member).generate(submit, self._bell)
        try:
            return await stack.enter_async_context(opened)
        except NodeUnavailable as error:
            self._note_failure(phase, error)
            raise

    async def _until(
        self,
        is_true: Callable[[], bool],
        *,
        prefill: RunningSequence,
        decode: RunningSequence | None = None,
    ) -> None:
        """Wait for what a node says; raise what either has ended with."""
        # where both have ended, the decode part knows why
        phases: dict[Phase, RunningSequence | None] = {"decode": decode, "prefill": prefill}
        while not is_true():
            for phase, sequence in phases.items():
                if sequence is not None and sequence.error is not None:
                    self._note_failure(phase, sequence.error)
                    raise sequence.error
            await self._bell.rung()

    async def _read(self, sequence: RunningSequence, take: Take, note: Note) -> None:
        try:
            async for tokens in sequence:
                if await take(note(tokens)):
                    return
            raise GenerationFailed("the node ended the sequence without saying why")
        except (GenerationFailed, NodeUnavailable, CapacityExceeded) as error:
            self._note_failure("decode", error)
            raise

    def _note_failure(self, phase: Phase, error: Exception) -> None:
        """Say who has ended it, and whether that is a fault. A full node is at none."""
        if isinstance(error, ReaderTooSlow):
            return
        self._is_to_blame = isinstance(error, GenerationFailed | NodeUnavailable)
        if not self._is_to_blame and not isinstance(error, CapacityExceeded):
            return
        if self._placement.is_whole:
            self._failed = ("prefill", "decode")
        elif isinstance(error, HandoffFailed):
            # the other one first: who tells of it is well enough to tell
            self._failed = (_OTHER[phase], phase)
            self._is_handoff = True
        else:
            self._failed = (phase,)


def _time_left_ms() -> int | None:
    """Return how long whoever runs this may still take; None: any time, or its client has the beginning."""
    left_s = anyio.current_effective_deadline() - anyio.current_time()
    return None if left_s == inf else round(max(left_s, 0) * 1000)
