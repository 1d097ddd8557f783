"""The one owner of a request from the parsed body to its last event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import anyio

from tenantry_runtime.core import Event, GenerateRequest, Message, RequestId, TenantId
from tenantry_runtime.errors import ContextExceeded, GenerationFailed
from tenantry_runtime.pool.messages import Submit
from tenantry_runtime.telemetry import RequestSpan
from tenantry_runtime.text import OutputState

from .answer import Answer
from .nodes import Nodes
from .off_loop import off_loop
from .offer import Offer

Emit = Callable[[Sequence[Event]], Awaitable[None]]


class Tokenized(NamedTuple):
    token_ids: list[int]
    initial: OutputState


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request. What it holds, the node's sequence, is held inside `run` alone."""

    request: GenerateRequest
    body_bytes: int
    """Of the request as it came: how much there may be to tokenize."""
    request_id: RequestId
    tenant: TenantId
    offer: Offer
    nodes: Nodes
    span: RequestSpan
    threads: anyio.CapacityLimiter
    """For requests that are too long for the event loop."""

    async def run(self, emit: Emit, *, response_id: str) -> Sequence[Event]:
        """Generate the answer and emit its events; return the last, which end in `Finish`.

        The last are left to the caller so that it sends them when nothing of the node is held any
        more. Leaving this in any way, by an error, a cancellation or a stop string, cancels the
        sequence on the node. A slow `emit` holds back this request alone.
        """
        node, node_context = self.nodes.place(self.request.model)
        with self.span.tokenizing():
            prompt = await off_loop(
                self._render_and_encode, num_bytes=self.body_bytes, limiter=self.threads
            )
        answer = Answer(
            self.offer.text.machine(prompt.initial, self.request.tools),
            stop=self.request.sampling.stop,
            prompt_tokens=len(prompt.token_ids),
        )
        context_tokens = min(node_context, self.offer.context_tokens)
        submit = self._submit(prompt.token_ids, context_tokens)
        events: list[Event] = []
        try:
            async with node.generate(submit) as steps:
                async for tokens in steps:
                    events = answer.take(tokens)
                    if answer.reason is not None:
                        break
                    if events:
                        await emit(events)
        finally:
            self.span.used(answer.usage)
        if answer.reason is None:
            raise GenerationFailed("the node ended the sequence without saying why")
        self.span.finished(answer.reason, response_id=response_id, timings=answer.timings)
        return events

    def _render_and_encode(self) -> Tokenized:
        request, text = self.request, self.offer.text
        messages = request.messages
        if request.prompt is not None:
            messages = (Message(role="user", content=request.prompt),)
        rendered = text.render(messages, request.tools, request.options)
        return Tokenized(text.encode(rendered), rendered.initial)

    def _submit(self, token_ids: list[int], context_tokens: int) -> Submit:
        """Fit the answer into the context; raise `ContextExceeded` where it does not."""
        sampling = self.request.sampling
        room = context_tokens - len(token_ids)
        wanted = max(1, room) if sampling.max_tokens is None else sampling.max_tokens
        if wanted > room:
            raise ContextExceeded(len(token_ids) + wanted, context_tokens)
        return Submit(
            request_id=self.request_id,
            tenant=self.tenant,
            model=self.request.model,
            token_ids=token_ids,
            sampling=sampling,
            stop_token_ids=tuple(sorted(self.offer.text.stop_token_ids)),
            max_tokens=wanted,
            session=self.request.session,
        )
