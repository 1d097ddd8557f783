"""The one owner of a request from the parsed body to its last event."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import anyio
import anyio.lowlevel
import msgspec
from starlette.requests import ClientDisconnect

from tenantry_runtime.cache.prefix_keys import page_keys
from tenantry_runtime.catalog import FREE
from tenantry_runtime.core import Event, GenerateRequest, Message, RequestId
from tenantry_runtime.errors import (
    CapacityExceeded,
    ContextExceeded,
    NodeLost,
    NodeUnavailable,
    RequestError,
    TenantryError,
)
from tenantry_runtime.pool.messages import Constraint, SequenceTokens, Submit, party_of
from tenantry_runtime.routing.placement import Asked, Placement
from tenantry_runtime.telemetry import RequestSpan
from tenantry_runtime.tenancy import (
    Entry,
    Interruption,
    Ledger,
    Limiter,
    NoLedger,
    NoLimits,
    Opening,
    Principal,
    Request,
)
from tenantry_runtime.text import OutputState

from .answer import Answer
from .attempt import Take
from .choices import Choices, name_of, seed_of
from .drift import Unwatched, Watch
from .nodes import Nodes
from .off_loop import off_loop
from .offer import Offer
from .sequence import RequestSequence
from .trail import Trail

Emit = Callable[[Sequence[Event], int], Awaitable[None]]
"""Takes events of one of the answers, which it is the index of."""


class Tokenized(NamedTuple):
    token_ids: list[int]
    initial: OutputState
    keys: list[int]
    """Of its full pages, where routing asks for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One request. What it holds, its sequences on nodes, is held inside `run` alone."""

    request: GenerateRequest
    body_bytes: int
    """Of the request as it came: how much there may be to tokenize."""
    request_id: RequestId
    principal: Principal
    offer: Offer
    nodes: Nodes
    span: RequestSpan
    threads: anyio.CapacityLimiter
    """For requests that are too long for the event loop."""
    trail: Trail = field(default_factory=Trail)
    """Kept up to date."""
    limiter: Limiter = field(default_factory=NoLimits)
    ledger: Ledger = field(default_factory=NoLedger)
    drift: Watch = field(default_factory=Unwatched)
    is_background: bool = False
    """Whether it runs in what others leave of a pool, however long it waits for that."""

    async def run(self, emit: Emit, *, response_id: str) -> Sequence[Sequence[Event]]:
        """Generate the answers and emit their events; return the last of each, which end in `Finish`.

        The last are left to the caller so that it sends them when nothing of the nodes is held any
        more. Leaving this in any way, by an error, a cancellation or a stop string, cancels the
        sequences where they run. A slow `emit` holds back this request alone.
        """
        self.nodes.require(self.request.model)
        with self.span.tokenizing():
            prompt = await off_loop(self._tokenize, num_bytes=self.body_bytes, limiter=self.threads)
        self.trail.begin(self.request.num_choices)
        self.span.follow(self.trail.journeys)
        async with AsyncExitStack() as stack:
            with self.span.stage("admit"):
                admitted = self.limiter.admit(self._admission(prompt))
                permit = await stack.enter_async_context(admitted)
            choices = Choices([self._answer(prompt) for _ in range(self.request.num_choices)])
            has_run = True
            try:
                last = await self._generate(prompt, choices, emit)
            except TenantryError as error:
                has_run = not _is_refused(choices, error)
                raise
            finally:
                self.span.used(choices.usage)
                if has_run:
                    permit.use(choices.usage.total_tokens)
        timings, *others = (answer.timings for answer in choices.answers)
        self.span.finished(choices.reasons, response_id=response_id, timings=timings, others=others)
        for choice, ending in enumerate(last):
            self.span.hear(ending, choice)
        return last

    def _answer(self, prompt: Tokenized) -> Answer:
        return Answer(
            self.offer.text.machine(prompt.initial, self.request.tools, self.request.messages),
            stop=self.request.sampling.stop,
            prompt_tokens=len(prompt.token_ids),
        )

    async def _generate(
        self, prompt: Tokenized, choices: Choices, emit: Emit
    ) -> Sequence[Sequence[Event]]:
        """Run the sequences, and keep their account as they go."""
        constraint = await self._constraint(prompt)
        async with self.ledger.open(self._opening(prompt)) as entry:

            async def run_choice(index: int) -> None:
                sequence = RequestSequence(
                    self.nodes,
                    self._asked(prompt),
                    submit=partial(self._submit, prompt.token_ids, constraint, index),
                    trail=self.trail,
                    is_let_in=index > 0,
                    journey=self.trail.journeys[index],
                )
                submit, output = await sequence.run(self._taking(index, choices, entry, emit))
                self.nodes.router.lengths.add(submit.tenant, submit.model, len(output))
                self.drift.answered(submit, output)

            try:
                await choices.run(run_choice)
                # whoever has been told otherwise is not billed for a whole answer
                await anyio.lowlevel.checkpoint_if_cancelled()
            except BaseException as error:
                entry.generated(choices.usage)
                self._say_why(entry, choices, error)
                raise
            self.trail.become_whole()
            entry.complete(choices.usage, choices.reasons[0])
        return choices.endings()

    def _taking(self, index: int, choices: Choices, entry: Entry, emit: Emit) -> Take:
        """Return what takes one answer's tokens."""
        answer = choices.answers[index]
        placement: Placement | None = None

        async def take(tokens: SequenceTokens) -> bool:
            nonlocal placement
            if self.trail.placement is not placement:
                placement = self.trail.placement
                assert placement is not None
                entry.served_by(**_served_by(placement))
            events = choices.take(index, tokens)
            if events:
                self.span.hear(events, index)
                if self.request.stream:
                    entry.delivered(choices.deliver(index))
                await emit(events, index)
            return answer.reason is not None

        return take

    def _say_why(self, entry: Entry, choices: Choices, error: BaseException) -> None:
        match error:
            case RequestError() | CapacityExceeded() | NodeUnavailable():
                if _is_refused(choices, error):
                    entry.refused()
            case ClientDisconnect():
                entry.interrupted(Interruption.CLIENT_GONE)
            case _ if isinstance(error, anyio.get_cancelled_exc_class()):
                entry.interrupted(self.trail.interruption())
            case _:
                entry.interrupted(Interruption.FAILED)

    def _admission(self, prompt: Tokenized) -> Request:
        return Request(
            principal=self.principal,
            model=self.request.model,
            prompt_tokens=len(prompt.token_ids),
            max_tokens=self.request.sampling.max_tokens,
            num_answers=self.request.num_choices,
        )

    def _opening(self, prompt: Tokenized) -> Opening:
        return Opening(
            request_id=self.request_id,
            tenant=self.principal.tenant,
            token_id=self.principal.token_id,
            model=self.request.model,
            prompt_tokens=len(prompt.token_ids),
            prices=self.offer.prices or FREE,
            trace_id=self.span.trace_id,
            worker=self.principal.worker,
            worker_version=self.principal.worker_version,
        )

    def _tokenize(self) -> Tokenized:
        request, text = self.request, self.offer.text
        messages = request.messages
        if request.prompt is not None:
            messages = (Message(role="user", content=request.prompt),)
        rendered = text.render(messages, request.tools, request.options)
        token_ids = text.encode(rendered)
        keys: list[int] = []
        if self.nodes.router.wants_keys(request.model):
            party = party_of(self.principal.tenant, is_background=self.is_background)
            keys = page_keys(party, token_ids)
        return Tokenized(token_ids, rendered.initial, keys)

    async def _constraint(self, prompt: Tokenized) -> Constraint | None:
        grammars, tenant = self.offer.grammars, self.principal.tenant
        if grammars is None:
            return None
        started_ns = time.time_ns()
        constraint = await grammars.constraint(self.request, prompt.initial, tenant=tenant)
        if constraint is not None:
            self.trail.journeys[0].past("compile grammar", started_ns)
        return constraint

    def _asked(self, prompt: Tokenized) -> Asked:
        return Asked(
            tenant=self.principal.tenant,
            model=self.request.model,
            num_tokens=len(prompt.token_ids),
            max_tokens=self.request.sampling.max_tokens,
            session=self.request.session,
            keys=prompt.keys,
            share=self.principal.plan.share,
        )

    def _submit(
        self,
        token_ids: list[int],
        constraint: Constraint | None,
        index: int,
        member_context: int,
    ) -> Submit:
        """Fit the answer into the context; raise `ContextExceeded` where it does not."""
        plan = self.principal.plan
        quota = plan.quota_of(self.request.model)
        context_tokens = min(member_context, self.offer.context_tokens)
        if quota.context_tokens is not None:
            context_tokens = min(context_tokens, quota.context_tokens)
        sampling = self.request.sampling
        room = context_tokens - len(token_ids)
        wanted = max(1, room) if sampling.max_tokens is None else sampling.max_tokens
        if wanted > room:
            raise ContextExceeded(len(token_ids) + wanted, context_tokens)
        return Submit(
            request_id=name_of(self.request_id, index),
            tenant=self.principal.tenant,
            model=self.request.model,
            token_ids=token_ids,
            sampling=msgspec.structs.replace(sampling, seed=seed_of(sampling.seed, index)),
            stop_token_ids=tuple(sorted(self.offer.text.stop_token_ids)),
            max_tokens=wanted,
            session=self.request.session,
            share=plan.share,
            may_wait=self.request.may_wait or self.is_background,
            is_background=self.is_background,
            max_waiting=None if self.is_background else quota.queue_depth,
            constraint=constraint,
            traceparent=self.span.traceparent,
        )


def _is_refused(choices: Choices, error: TenantryError) -> bool:
    """Say whether a request has failed before anything of it ran."""
    if choices.usage.completion_tokens or isinstance(error, NodeLost):
        # a node that is lost had begun
        return False
    return isinstance(error, RequestError | CapacityExceeded | NodeUnavailable)


def _served_by(placement: Placement) -> dict[str, str]:
    """Say which checkpoint wrote the answer, and which formats of weights and cache each phase has."""
    serving = placement.serving
    formats = (
        f"{phase}={each.weights_format}/{each.cache_format}" for phase, each in serving.items()
    )
    return {"revision": [*serving.values()][-1].revision, "formats": " ".join(formats)}
