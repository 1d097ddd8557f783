"""Requests that run over fake nodes, and what came of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from support.plain_text import KIMI
from tenantry_runtime.core import PAGE_TOKENS, Sampling
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.edge.sequence import RequestSequence
from tenantry_runtime.edge.trail import Trail
from tenantry_runtime.errors import TenantryError
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.pool.messages import SequenceTokens, Submit
from tenantry_runtime.routing.placement import Asked
from tenantry_runtime.telemetry import Journey

PROMPT = list(range(1000, 1000 + 2 * PAGE_TOKENS + 5))
MAX_TOKENS = 100


@dataclass(slots=True, eq=False, kw_only=True)
class Flow:
    """One request, and what its client has had of it."""

    nodes: Nodes
    tenant: str = "tenant"
    session: str | None = None
    request_id: str = "request"
    max_tokens: int = MAX_TOKENS
    may_wait: bool = True
    max_waiting: int | None = None
    received: list[SequenceTokens] = field(default_factory=list)
    error: TenantryError | None = None
    has_ended: anyio.Event = field(default_factory=anyio.Event)
    trail: Trail = field(default_factory=Trail)
    journey: Journey = field(default_factory=Journey)

    async def run(self) -> None:
        """Run to the end; keep an error."""
        sequence = RequestSequence(
            self.nodes,
            Asked(
                tenant=self.tenant,
                model=KIMI.id,
                num_tokens=len(PROMPT),
                max_tokens=self.max_tokens,
                session=self.session,
            ),
            submit=lambda _context: self._submit(),
            trail=self.trail,
            journey=self.journey,
            first_pause_s=0.0,
        )
        try:
            await sequence.run(self._take)
        except TenantryError as error:
            self.error = error
        finally:
            self.has_ended.set()

    async def ended(self) -> None:
        with anyio.fail_after(5):
            await self.has_ended.wait()

    @property
    def text(self) -> str:
        return "".join(chr(token) for tokens in self.received for token in tokens.token_ids)

    async def received_text(self, text: str) -> None:
        """Wait until the client has had so much."""
        with anyio.fail_after(5):
            while self.text != text:
                await anyio.lowlevel.checkpoint()

    def _submit(self) -> Submit:
        return Submit(
            request_id=self.request_id,
            tenant=self.tenant,
            model=KIMI.id,
            token_ids=PROMPT,
            sampling=Sampling(seed=1),
            stop_token_ids=(),
            max_tokens=self.max_tokens,
            session=self.session,
            may_wait=self.may_wait,
            max_waiting=self.max_waiting,
        )

    async def _take(self, tokens: SequenceTokens) -> bool:
        self.received.append(tokens)
        return tokens.finish is not None


@asynccontextmanager
async def running(
    sources: Sequence[TokenSource],
    *,
    nodes: Nodes | None = None,
    may_wait: bool = True,
    max_waiting: int | None = None,
) -> AsyncIterator[Flow]:
    """Start a request; when the block is left, it must have ended and hold nothing."""
    flow = Flow(nodes=nodes or Nodes(sources), may_wait=may_wait, max_waiting=max_waiting)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flow.run)
        yield flow
        await flow.ended()
    check_nothing_is_held(flow.nodes)


def check_nothing_is_held(nodes: Nodes) -> None:
    for member in nodes.router.members:
        assert (member.prefill_tokens, member.decode_tokens, member.promised_pages) == (0, 0, 0)
        assert not member.placements
