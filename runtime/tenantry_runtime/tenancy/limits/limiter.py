"""Limits, as the edge asks for them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import anyio

from tenantry_runtime.background import background_tasks
from tenantry_runtime.routing.quantile import OutputLengths
from tenantry_runtime.tenancy.admission import Permit, Request
from tenantry_runtime.tenancy.authentication import Principal
from tenantry_runtime.tenancy.database import Database

from .headers import headers
from .knowledge import Knowledge
from .meter import TIMEOUT_S, Meter
from .terms import Terms
from .waiting import WaitingRoom

_NONE: Mapping[str, str] = MappingProxyType({})


class StoreLimiter:
    """Holds tenants to their plans through the store's database. A `Limiter`; see `open_limiter`."""

    def __init__(
        self,
        database: Database,
        *,
        timeout_s: float = TIMEOUT_S,
        room: WaitingRoom | None = None,
    ) -> None:
        self._database = database
        self._lengths = OutputLengths()
        self.meter = Meter(
            database,
            edge_id=str(uuid.uuid4()),
            noting=lambda balances: self._knowledge.note(balances),
            timeout_s=timeout_s,
            room=room,
        )
        """To be run."""
        self._knowledge = Knowledge(self.meter.own_open)

    def precheck(self, principal: Principal, model: str) -> None:
        terms = Terms.of(principal, model)
        if terms is None:
            return
        refused = self._knowledge.refusal(terms, self._now_us())
        if refused is not None:
            raise refused

    def headers(self, principal: Principal, model: str) -> Mapping[str, str]:
        terms = Terms.of(principal, model)
        return _NONE if terms is None else headers(terms, self._knowledge, self._now_us())

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[Permit]:
        terms = Terms.of(request.principal, request.model)
        permit = _Permit()
        if terms is None:
            yield permit
            return
        place = terms.place
        expected = self._lengths.expected(place.tenant, place.model, request.max_tokens)
        num_expected = request.prompt_tokens + request.num_answers * expected
        held = await self.meter.admit(terms, num_expected)
        try:
            yield permit
        finally:
            self.meter.settle(held, permit.num_tokens)
            num_output = permit.num_tokens - request.prompt_tokens
            if held.tokens is not None and num_output > 0:
                # of each answer, as it is asked for
                num_each = -(-num_output // request.num_answers)
                self._lengths.add(place.tenant, place.model, num_each)

    def _now_us(self) -> int:
        return self._database.now_ms() * 1000


class _Permit:
    __slots__ = ("num_tokens",)

    def __init__(self) -> None:
        self.num_tokens = 0

    def use(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens


@asynccontextmanager
async def open_limiter(
    database: Database, *, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[StoreLimiter]:
    """Keep limits while the block runs; what is admitted has to end before it does.

    Nothing of this asks the database before there is a tenant with limits.
    """
    limiter = StoreLimiter(database, timeout_s=timeout_s)
    try:
        async with background_tasks() as tasks:
            tasks.start_soon(limiter.meter.run)
            yield limiter
    finally:
        with anyio.CancelScope(shield=True):
            # bounded by the meter's own timeout
            await limiter.meter.leave()
