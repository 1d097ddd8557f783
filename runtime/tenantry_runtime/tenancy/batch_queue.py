"""The queue of batches, as the edges see it that share it.

| a request | `due_ms` | `claim` |
|---|---|---|
| waits | when it may be claimed, or earlier | null |
| runs | the end of its lease, which whoever runs it puts off; of one that is gone, others claim it then | whose it is |
| has a response | null | null |

So it may run more than once, but the first response stays, and nothing that has one runs again. Each
attempt has a request's id of its own, which follows from its place and its number, and one record in
the ledger. An attempt that did not come to its end bills nothing; one that comes after an attempt that
was billed, whose response was lost with its edge, is free.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import sqlalchemy as sa

from tenantry_runtime.core import RequestId, TenantId, Usage
from tenantry_runtime.errors import AccountSuspended, Forbidden, Unauthenticated

from . import schema
from .authentication import Principal, account_principal
from .batches import BatchResponse, done
from .database import Database
from .plan import Plan
from .terms import to_plan
from .tokens import Scope

LEASE_MS = 15_000
"""After which what a dead edge ran is run by another."""

MAX_FAILURES = 5
"""Attempts that nothing excuses; an edge that dies of a request counts."""

_MAX_LOOKED_BACK = 100
"""Attempts that are looked at for whether one was billed: the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A request that is ours to run, until its lease ends."""

    batch_id: str
    number: int
    account_id: TenantId
    token_id: str
    """Empty: one of the tenant's workers submitted it."""
    model: str
    external_reference: str | None
    body: bytes
    attempt: int
    """Counted from 1."""
    num_failures: int
    """Of earlier attempts."""
    worker: str = ""
    """That submitted it; empty: none."""
    worker_version: str = ""

    @property
    def request_id(self) -> RequestId:
        return _request_id(self.batch_id, self.number, self.attempt)


@dataclass(frozen=True, slots=True)
class BatchQueue:
    """Claims, and what becomes of them. One for each process that runs requests."""

    database: Database
    worker: str = field(default_factory=lambda: str(uuid.uuid4()))
    lease_ms: int = LEASE_MS

    async def accounts(self) -> Sequence[TenantId]:
        """Return the tenants with batches that are not complete."""
        batches = schema.batches
        wanted = sa.select(batches.c.account_id).where(batches.c.ended_ms.is_(None)).distinct()
        async with self.database.connect() as connection:
            return [*(await connection.execute(wanted.order_by(batches.c.account_id))).scalars()]

    async def claim(self, account: TenantId, limit: int) -> list[Claim]:
        """Claim what has waited longest of a tenant."""
        requests, batches = schema.batch_requests, schema.batches
        now_ms = self.database.now_ms()
        due = (
            sa.select(
                requests,
                *(batches.c[name] for name in ("token_id", "model", "worker", "worker_version")),
            )
            .join(batches)
            .where(requests.c.account_id == account, requests.c.due_ms <= now_ms)
            .order_by(requests.c.due_ms, requests.c.batch_id, requests.c.number)
            .limit(limit)
            # what another edge claims just now is not ours
            .with_for_update(of=requests, skip_locked=True)
        )
        async with self.database.begin() as connection:
            rows = (await connection.execute(due)).mappings().all()
            if not rows:
                return []
            claiming = (
                sa.update(requests)
                .where(_is(sa.bindparam("in_batch"), sa.bindparam("at")))
                .values(
                    due_ms=now_ms + self.lease_ms,
                    claim=self.worker,
                    num_attempts=requests.c.num_attempts + 1,
                    num_failures=requests.c.num_failures + 1,
                )
            )
            keys = [{"in_batch": row["batch_id"], "at": row["number"]} for row in rows]
            await connection.execute(claiming, keys)
        await self._start({row["batch_id"] for row in rows}, now_ms)
        return [_claim(row) for row in rows]

    async def renew(self, claims: Collection[Claim]) -> set[Claim]:
        """Put off the ends of leases; return the claims that are ours no more."""
        if not claims:
            return set()
        requests = schema.batch_requests
        is_ours = sa.and_(
            requests.c.claim == self.worker,
            requests.c.batch_id.in_({claim.batch_id for claim in claims}),
        )
        ours = (
            sa.select(requests.c.batch_id, requests.c.number, requests.c.num_attempts)
            .where(is_ours)
            # in the order in which everybody locks them
            .order_by(requests.c.batch_id, requests.c.number)
            .with_for_update()
        )
        ends_ms = self.database.now_ms() + self.lease_ms
        async with self.database.begin() as connection:
            held = {tuple(row) for row in (await connection.execute(ours)).all()}
            await connection.execute(sa.update(requests).where(is_ours).values(due_ms=ends_ms))
        return {each for each in claims if (each.batch_id, each.number, each.attempt) not in held}

    async def release(
        self, claims: Iterable[Claim], *, delay_s: float = 0.0, is_excused: bool = True
    ) -> None:
        """Give requests back to the queue, to be claimed after a while.

        `is_excused`: that they have no response is no fault of theirs.
        """
        requests = schema.batch_requests
        giving_back = (
            sa.update(requests)
            .where(_is(sa.bindparam("in_batch"), sa.bindparam("at")))
            .where(requests.c.claim == self.worker)
            .where(requests.c.num_attempts == sa.bindparam("attempt"))
            .values(
                due_ms=self.database.now_ms() + round(delay_s * 1000),
                claim=None,
                num_failures=requests.c.num_failures - (1 if is_excused else 0),
            )
        )
        keys = [
            {"in_batch": each.batch_id, "at": each.number, "attempt": each.attempt}
            for each in claims
        ]
        if keys:
            async with self.database.begin() as connection:
                await connection.execute(giving_back, keys)

    async def finish(self, claim: Claim, response: BatchResponse, usage: Usage) -> bool:
        """Keep a response, and count what it came to; False where there is one already."""
        requests, batches = schema.batch_requests, schema.batches
        async with self.database.begin() as connection:
            batch = sa.select(batches.c.id).where(batches.c.id == claim.batch_id)
            # in the order in which everybody locks them
            await connection.execute(batch.with_for_update())
            kept = await connection.execute(
                sa.update(requests)
                .where(_is(claim.batch_id, claim.number), requests.c.due_ms.is_not(None))
                .values(done(response))
            )
            if not kept.rowcount:
                return False
            is_last = batches.c.num_done + 1 == batches.c.num_requests
            await connection.execute(
                sa.update(batches)
                .where(batches.c.id == claim.batch_id)
                .values(
                    num_done=batches.c.num_done + 1,
                    prompt_tokens=batches.c.prompt_tokens + usage.prompt_tokens,
                    completion_tokens=batches.c.completion_tokens + usage.completion_tokens,
                    ended_ms=sa.case((is_last, self.database.now_ms()), else_=batches.c.ended_ms),
                )
            )
        return True

    async def is_billed(self, claim: Claim) -> bool:
        """Whether an earlier attempt has been billed."""
        if claim.attempt == 1:
            return False
        usage = schema.usage
        earliest = max(claim.attempt - _MAX_LOOKED_BACK, 1)
        names = [
            _request_id(claim.batch_id, claim.number, attempt)
            for attempt in range(earliest, claim.attempt)
        ]
        billed = sa.select(usage.c.request_id).where(usage.c.request_id.in_(names)).limit(1)
        async with self.database.connect() as connection:
            found = await connection.execute(billed.where(usage.c.output_tokens > 0))
        return found.one_or_none() is not None

    async def principal(self, claim: Claim) -> Principal:
        """Return whom a request is run for, on the terms that hold now.

        Raises `AccountSuspended`, `Forbidden` for an account that is deleted, or `Unauthenticated`
        where the token was revoked since. One that has expired was good when it counted. What a
        worker submitted is run for its tenant, also when the worker is gone.
        """
        if not claim.token_id:
            principal = await account_principal(
                self.database,
                claim.account_id,
                worker=claim.worker,
                worker_version=claim.worker_version,
            )
            return replace(principal, plan=_in_background(principal.plan))
        accounts, plans, tokens = schema.accounts, schema.plans, schema.tokens
        wanted = (
            sa.select(
                accounts.c.suspended_ms,
                accounts.c.deleted_ms,
                accounts.c.overrides,
                plans.c.terms,
                tokens.c.revoked_ms,
            )
            .select_from(tokens.join(accounts).join(plans))
            .where(tokens.c.id == claim.token_id, accounts.c.id == claim.account_id)
        )
        async with self.database.connect() as connection:
            row = (await connection.execute(wanted)).one_or_none()
        if row is None or row.deleted_ms is not None:
            raise Forbidden
        if row.revoked_ms is not None:
            raise Unauthenticated
        if row.suspended_ms is not None:
            raise AccountSuspended
        return Principal(
            tenant=claim.account_id,
            token_id=claim.token_id,
            scopes=frozenset((Scope.RUN,)),
            plan=_in_background(to_plan(row.terms, row.overrides)),
        )

    async def _start(self, batch_ids: Collection[str], now_ms: int) -> None:
        # apart from the claims: who locks a batch first and then its requests would wait for us
        batches = schema.batches
        async with self.database.begin() as connection:
            await connection.execute(
                sa.update(batches)
                .where(batches.c.id.in_(batch_ids), batches.c.started_ms.is_(None))
                .values(started_ms=now_ms)
            )


def _is(
    batch_id: str | sa.BindParameter[str], number: int | sa.BindParameter[int]
) -> sa.ColumnElement[bool]:
    requests = schema.batch_requests
    return sa.and_(requests.c.batch_id == batch_id, requests.c.number == number)


def _in_background(plan: Plan) -> Plan:
    """Return the terms of what takes nothing from requests that run at one time."""
    replace = msgspec.structs.replace
    return replace(
        plan,
        quota=replace(plan.quota, concurrent_requests=None),
        models={
            model: replace(quota, concurrent_requests=None) for model, quota in plan.models.items()
        },
    )


def _request_id(batch_id: str, number: int, attempt: int) -> RequestId:
    return RequestId(f"{batch_id}-{number}-{attempt}")


def _claim(row: sa.RowMapping) -> Claim:
    return Claim(
        batch_id=row["batch_id"],
        number=row["number"],
        account_id=row["account_id"],
        token_id=row["token_id"],
        model=row["model"],
        external_reference=row["external_reference"],
        body=row["body"],
        attempt=row["num_attempts"] + 1,
        num_failures=row["num_failures"],
        worker=row["worker"],
        worker_version=row["worker_version"],
    )
