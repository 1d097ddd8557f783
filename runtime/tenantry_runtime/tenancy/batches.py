"""Batches of requests that wait for spare capacity: what their tenants and operators do with them.

Whoever runs them has `batch_queue.py`. A batch is complete when each of its requests has a response,
which stays for `RETENTION_MS`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import NoSuchRecord, RateExceeded

from . import schema
from .database import Database

RETENTION_MS = 24 * 3600 * 1000
"""From a batch's end: time enough to poll it, whatever the client is."""

MAX_QUEUED = 10_000
"""Requests of one tenant without a response."""

MAX_QUEUED_BYTES = 256 << 20
"""Of them together; as many submissions of the largest size as an hour of answers, roughly."""

RETRY_AFTER_S = 60
"""For whom has reached one of them: a queue moves in minutes."""

MAX_PER_SWEEP = 50
"""Batches that one transaction deletes."""

BatchStatus: TypeAlias = Literal["queued", "running", "complete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """One request as it is submitted."""

    body: bytes
    """JSON, without the reference."""
    external_reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Where a batch stands."""

    id: str
    account_id: TenantId
    token_id: str
    """Empty: one of the tenant's workers submitted it."""
    model: str
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    num_requests: int
    num_done: int
    num_bytes: int
    prompt_tokens: int
    completion_tokens: int
    worker: str = ""
    """That submitted it; empty: none."""
    worker_version: str = ""

    @property
    def status(self) -> BatchStatus:
        if self.ended_ms is not None:
            return "complete"
        return "queued" if self.started_ms is None else "running"


class FailureEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str


class BatchResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of one request, as it is printed."""

    id: int
    success: bool
    external_reference: str | None = None
    result: msgspec.Raw | None = None
    errors: list[FailureEntry] = []


CANCELED = FailureEntry(code=3040, message="The request was canceled by the operator")


class Batches:
    """What is submitted, and what came of it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def submit(
        self,
        account: str,
        token_id: str,
        model: str,
        requests: Sequence[BatchRequest],
        *,
        worker: str = "",
        worker_version: str = "",
    ) -> str:
        """Queue requests of a tenant, or of its worker, and return the batch's id.

        They are safe from then on. Raises `RateExceeded` where too many wait.
        """
        assert requests
        batch_id, now_ms = str(uuid.uuid4()), self._database.now_ms()
        num_bytes = sum(len(request.body) for request in requests)
        batches = schema.batches
        async with self._database.begin() as connection:
            await _require_room(connection, account, len(requests), num_bytes)
            batch = {
                "id": batch_id,
                "account_id": account,
                "token_id": token_id,
                "model": model,
                "created_ms": now_ms,
                "num_requests": len(requests),
                "num_done": 0,
                "num_bytes": num_bytes,
                "prompt_tokens": 0,
                "completion_tokens": 0,
                "worker": worker,
                "worker_version": worker_version,
            }
            await connection.execute(sa.insert(batches).values(batch))
            rows = [
                {
                    "batch_id": batch_id,
                    "number": number,
                    "account_id": account,
                    "external_reference": request.external_reference,
                    "body": request.body,
                    "due_ms": now_ms,
                    "num_attempts": 0,
                    "num_failures": 0,
                }
                for number, request in enumerate(requests)
            ]
            await connection.execute(sa.insert(schema.batch_requests), rows)
        await self._database.harden()
        return batch_id

    async def find(self, batch_id: str) -> Batch | None:
        async with self._database.connect() as connection:
            found = await connection.execute(
                sa.select(schema.batches).where(schema.batches.c.id == batch_id)
            )
        row = found.mappings().one_or_none()
        return None if row is None else Batch(**row)

    async def responses(self, batch_id: str) -> list[bytes]:
        """Return what there is by now, each a `BatchResponse` in JSON, in the order of the requests."""
        requests = schema.batch_requests
        wanted = (
            sa.select(requests.c.response)
            .where(requests.c.batch_id == batch_id, requests.c.response.is_not(None))
            .order_by(requests.c.number)
        )
        async with self._database.connect() as connection:
            return [*(await connection.execute(wanted)).scalars()]

    async def list(self, *, account: str | None = None, limit: int = 100) -> list[Batch]:
        """Return the latest, those first, of one account or of all."""
        batches = schema.batches
        wanted = sa.select(batches).order_by(batches.c.created_ms.desc(), batches.c.id).limit(limit)
        if account is not None:
            wanted = wanted.where(batches.c.account_id == account)
        async with self._database.connect() as connection:
            found = await connection.execute(wanted)
        return [Batch(**row) for row in found.mappings()]

    async def cancel(self, batch_id: str) -> int:
        """Give all requests that have no response one that says so; return how many.

        Those that run are broken off at the next renewal of their leases, and bill nothing. Raises
        `NoSuchRecord`.
        """
        requests, batches = schema.batch_requests, schema.batches
        open_ones = (
            sa.select(requests.c.number, requests.c.external_reference)
            .where(requests.c.batch_id == batch_id, requests.c.due_ms.is_not(None))
            .order_by(requests.c.number)
            .with_for_update()
        )
        async with self._database.begin() as connection:
            mine = sa.select(batches.c.id).where(batches.c.id == batch_id).with_for_update()
            if (await connection.execute(mine)).one_or_none() is None:
                raise NoSuchRecord("batch", batch_id, "`workerctl batch list` lists them")
            found = (await connection.execute(open_ones)).all()
            for number, reference in found:
                canceled = BatchResponse(
                    id=number, success=False, external_reference=reference, errors=[CANCELED]
                )
                await connection.execute(
                    sa.update(requests)
                    .where(requests.c.batch_id == batch_id, requests.c.number == number)
                    .values(done(canceled))
                )
            if found:
                await connection.execute(
                    sa.update(batches)
                    .where(batches.c.id == batch_id)
                    .values(num_done=batches.c.num_requests, ended_ms=self._database.now_ms())
                )
        return len(found)

    async def sweep(self, *, retention_ms: int = RETENTION_MS) -> int:
        """Delete batches that ended before the retention; return how many, `MAX_PER_SWEEP` at most."""
        batches = schema.batches
        old = (
            sa.select(batches.c.id)
            .where(batches.c.ended_ms < self._database.now_ms() - retention_ms)
            .order_by(batches.c.ended_ms)
            .limit(MAX_PER_SWEEP)
            # who deletes the same just now need not be waited for
            .with_for_update(skip_locked=True)
        )
        async with self._database.begin() as connection:
            deleted = await connection.execute(
                sa.delete(batches).where(batches.c.id.in_(old.scalar_subquery()))
            )
        return deleted.rowcount


async def _require_room(
    connection: AsyncConnection, account: str, num_requests: int, num_bytes: int
) -> None:
    """Raise `RateExceeded` where so much more would be too much of an account."""
    # who submits for the same account at the same time waits
    mine = sa.select(schema.accounts.c.id).where(schema.accounts.c.id == account)
    await connection.execute(mine.with_for_update())
    batches = schema.batches
    waiting = sa.select(
        sa.func.coalesce(sa.func.sum(batches.c.num_requests - batches.c.num_done), 0),
        sa.func.coalesce(sa.func.sum(batches.c.num_bytes), 0),
    ).where(batches.c.account_id == account, batches.c.ended_ms.is_(None))
    num_waiting, num_waiting_bytes = (await connection.execute(waiting)).one()
    if num_waiting + num_requests > MAX_QUEUED or num_waiting_bytes + num_bytes > MAX_QUEUED_BYTES:
        raise RateExceeded("queued_batch_requests", RETRY_AFTER_S)


# Any: as the columns have it
def done(response: BatchResponse) -> dict[str, Any]:
    """Return what a request's row has once there is a response."""
    return {
        "response": msgspec.json.encode(response),
        "body": b"",
        "due_ms": None,
        "claim": None,
    }
