"""The one task of an edge that runs what is queued in batches, a bounded number at one time.

| what an attempt ends with | then |
|---|---|
| an answer | it is kept as the response |
| a limit of the tenant's plan, a full pool, no node, a store that is away | back to the queue, and a pause for the tenant |
| an account that is suspended | the same, until it is not |
| a node's failure | back to the queue, `MAX_FAILURES` times in all; then that is the response |
| anything else that is the request's own | the error is the response |
| this edge ends, or has lost its claim | back to the queue; the attempt bills nothing |

Requests run in the background of their pools, beyond what plans say of requests at one time; all else
that holds for a request by itself holds for them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Never

import anyio

from tenantry_runtime.core import Usage
from tenantry_runtime.errors import (
    AccountSuspended,
    CapacityExceeded,
    GenerationFailed,
    LedgerUnavailable,
    LimitExceeded,
    NodeLost,
    NodeUnavailable,
    StoreUnavailable,
    TenantryError,
)
from tenantry_runtime.tenancy.batch_queue import MAX_FAILURES, BatchQueue, Claim
from tenantry_runtime.tenancy.batches import BatchResponse, FailureEntry

from . import envelope
from .batch_attempt import answer_claim
from .config import BatchConfig
from .dialects.dialect import Dialect
from .services import Services

POLL_S = 1.0
"""Between looks at a queue that had nothing: what waits for spare capacity can wait for that."""

RENEWED_AT = 0.25
"""Of a lease, so that it outlives two renewals that fail."""

SWEEP_EVERY_S = 60.0

PAUSE_S = 2.0
"""For a tenant whose request found no room, no node or no store."""

SUSPENDED_PAUSE_S = 30.0

LAST_WORD_S = 2.0
"""For the store, when a response is there and this edge is to end."""

_log = logging.getLogger(__name__)


class BatchWorker:
    """Runs until `close`. What it has claimed, it holds inside `run`."""

    def __init__(
        self,
        services: Services,
        dialect: Dialect,
        config: BatchConfig | None = None,
    ) -> None:
        config = config or BatchConfig()
        self.queue = BatchQueue(services.store.database, lease_ms=round(config.lease_s * 1000))
        self._services = services
        self._dialect = dialect
        self._max_running = config.max_running
        self._renew_every_s = config.lease_s * RENEWED_AT
        self._running: dict[Claim, anyio.CancelScope] = {}
        self._paused: dict[str, float] = {}
        """Until when nothing is claimed of a tenant."""
        self._scope = anyio.CancelScope()
        self._has_ended = anyio.Event()
        """Set when one of those that run has ended."""

    @property
    def num_running(self) -> int:
        return len(self._running)

    def close(self) -> None:
        """Give back what runs and claim no more; `run` returns soon."""
        self._scope.cancel()

    async def run(self) -> None:
        """Claim and run."""
        with self._scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_every, self._renew_every_s, self._renew)
                tasks.start_soon(_every, SWEEP_EVERY_S, self._services.store.batches.sweep)
                while True:
                    claims = await self._claim()
                    for claim in claims:
                        self._running[claim] = anyio.CancelScope()
                        tasks.start_soon(self._see_to, claim)
                    with anyio.move_on_after(POLL_S):
                        await self._has_ended.wait()
                    self._has_ended = anyio.Event()

    async def _claim(self) -> list[Claim]:
        """Claim what there is room for, of the tenants with least running here first."""
        claims: list[Claim] = []
        if self.num_running >= self._max_running:
            return claims
        running = Counter(claim.account_id for claim in self._running)
        now_s = anyio.current_time()
        self._paused = {account: at for account, at in self._paused.items() if at > now_s}
        try:
            waiting = [a for a in await self.queue.accounts() if a not in self._paused]
            waiting.sort(key=lambda account: running[account])
            for at, account in enumerate(waiting):
                num_free = self._max_running - self.num_running - len(claims)
                # as many for each that is left
                share = -(-num_free // (len(waiting) - at))
                if share > 0:
                    claims += await self.queue.claim(account, share)
        except StoreUnavailable as error:
            _log.warning("batches: %s", error)
        return claims

    async def _renew(self) -> None:
        for lost in await self.queue.renew(self._running):
            _log.warning("request %s: the claim is lost", lost.request_id)
            self._running[lost].cancel()

    async def _see_to(self, claim: Claim) -> None:
        try:
            with self._running[claim] as scope:
                await self._run(claim, scope)
        finally:
            del self._running[claim]
            self._has_ended.set()
            if self._scope.cancel_called:
                with anyio.move_on_after(LAST_WORD_S, shield=True):
                    # no other's: who has lost its claim gives nothing back
                    await self._tell(partial(self.queue.release, [claim]))

    async def _run(self, claim: Claim, scope: anyio.CancelScope) -> None:
        try:
            if claim.num_failures >= MAX_FAILURES:
                raise GenerationFailed("given up: the edges that ran the request have died")
            answered = await answer_claim(
                claim,
                self._services,
                self._dialect,
                queue=self.queue,
                closing=self._scope,
                attempt=scope,
            )
            await self._finish(claim, *answered)
        except (GenerationFailed, NodeLost) as error:
            if claim.num_failures + 1 < MAX_FAILURES:
                _log.warning("request %s: %s", claim.request_id, error)
                await self._put_back(claim, PAUSE_S, is_excused=False)
            else:
                await self._fail(claim, error)
        except LimitExceeded as error:
            await self._pause(claim, error.retry_after_s)
        except AccountSuspended:
            await self._pause(claim, SUSPENDED_PAUSE_S)
        except (CapacityExceeded, NodeUnavailable, StoreUnavailable, LedgerUnavailable):
            await self._pause(claim, PAUSE_S)
        except TenantryError as error:
            await self._fail(claim, error)
        except Exception:
            # the outermost place of a request: a bug is that request's failure, and is logged
            _log.exception("request %s failed", claim.request_id)
            await self._put_back(claim, PAUSE_S, is_excused=False)

    async def _finish(self, claim: Claim, response: BatchResponse, usage: Usage) -> None:
        """Keep a response, which has been paid for: as often as it takes the store to answer."""
        with anyio.move_on_after(LAST_WORD_S, shield=True):
            if await self._tell(partial(self.queue.finish, claim, response, usage)):
                return
        while True:
            await anyio.sleep(PAUSE_S)
            if await self._tell(partial(self.queue.finish, claim, response, usage)):
                return

    async def _fail(self, claim: Claim, error: TenantryError) -> None:
        entry = envelope.error_entry(error)
        response = BatchResponse(
            id=claim.number,
            success=False,
            external_reference=claim.external_reference,
            errors=[FailureEntry(code=entry.code, message=entry.message)],
        )
        await self._finish(claim, response, Usage(prompt_tokens=0, completion_tokens=0))

    async def _pause(self, claim: Claim, pause_s: float) -> None:
        self._paused[claim.account_id] = anyio.current_time() + pause_s
        await self._put_back(claim, pause_s)

    async def _put_back(self, claim: Claim, delay_s: float, *, is_excused: bool = True) -> None:
        await self._tell(
            partial(self.queue.release, [claim], delay_s=delay_s, is_excused=is_excused)
        )

    async def _tell(self, tell: Callable[[], Awaitable[object]]) -> bool:
        """Tell the store; False if it does not answer. A claim that it has not heard of ends by itself."""
        try:
            await tell()
        except StoreUnavailable as error:
            _log.warning("batches: %s", error)
            return False
        return True


async def _every(interval_s: float, work: Callable[[], Awaitable[object]]) -> Never:
    while True:
        await anyio.sleep(interval_s)
        try:
            await work()
        except StoreUnavailable as error:
            _log.warning("batches: %s", error)
