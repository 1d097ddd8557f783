"""What calls a worker besides its own URL: routes and cron triggers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database
from tenantry_runtime.workers.cron.expression import parse_cron

from . import patterns
from .names import can_be_known
from .patterns import Pattern
from .records import Route, Schedule, Worker, WorkerSchedule
from .rows import deployments, lock_worker, require_worker, workers

MAX_ROUTES = 100
"""Of one worker."""
MAX_SCHEDULES = 10
"""Of one worker."""

LOCAL_DOMAIN = "localhost"
"""`<account>.localhost` and what is below it is the account's; browsers resolve it."""

_routes, _schedules = schema.worker_routes, schema.worker_schedules


class Triggers:
    """What `WorkerStore.triggers` is."""

    def __init__(self, database: Database, domains: Mapping[TenantId, Sequence[str]]) -> None:
        """`domains` are those that accounts have routes below, besides their own at `LOCAL_DOMAIN`."""
        self._database = database
        self._domains = domains

    def domains_of(self, account: TenantId) -> list[str]:
        """Return the domains at and below which an account may have routes."""
        named = [domain.lower() for domain in self._domains.get(account, ())]
        return [f"{account}.{LOCAL_DOMAIN}", *named]

    async def set_routes(
        self, account: TenantId, name: str, texts: Sequence[str], *, is_whole: bool = True
    ) -> list[Route]:
        """Let patterns lead to a worker; `is_whole`: and no others.

        Raises `NoSuchRecord` for the worker, `InvalidInput` for a pattern or too many.
        """
        wanted = [self._allowed(account, text) for text in dict.fromkeys(texts)]
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            ours = _routes.c.worker_id == worker.id
            if is_whole:
                await connection.execute(sa.delete(_routes).where(ours))
            for pattern in wanted:
                await self._add_route(connection, worker, pattern)
            total = sa.select(sa.func.count()).select_from(_routes).where(ours)
            if (await connection.execute(total)).scalar_one() > MAX_ROUTES:
                raise InvalidInput("routes", f"are more than {MAX_ROUTES}")
        return await self.routes(account, name)

    async def routes(self, account: TenantId, name: str | None = None) -> list[Route]:
        """Return the routes of a worker, or of all of an account, by pattern."""
        wanted = (
            sa.select(_routes.c.id, _routes.c.pattern, workers.c.name)
            .select_from(_routes.join(workers))
            .where(workers.c.account_id == account)
            .order_by(_routes.c.pattern)
        )
        if name is not None:
            wanted = wanted.where(workers.c.name == name)
        async with self._database.connect() as connection:
            rows = (await connection.execute(wanted)).all()
        return [
            Route(id=row.id, account=account, worker=row.name, pattern=row.pattern) for row in rows
        ]

    async def delete_route(self, account: TenantId, route_id: str) -> bool:
        """Forget a route; False if there is none."""
        if not can_be_known(route_id):
            return False
        ours = sa.and_(_routes.c.account_id == account, _routes.c.id == route_id)
        async with self._database.begin() as connection:
            return (await connection.execute(sa.delete(_routes).where(ours))).rowcount > 0

    async def by_route(self, host: str, path: str) -> tuple[TenantId, str] | None:
        """Return whose worker a host, without a port, and a path lead to."""
        if not can_be_known(host):
            return None
        wanted = (
            sa.select(_routes.c.pattern, workers.c.account_id, workers.c.name)
            .select_from(_routes.join(workers))
            .where(_routes.c.host.in_(patterns.hosts_for(host)))
        )
        async with self._database.connect() as connection:
            rows = (await connection.execute(wanted)).all()
        parsed = {patterns.parse(row.pattern): row for row in rows}
        # a domain may have been taken from an account since
        found = {each: row for each, row in parsed.items() if self._owns(row.account_id, each)}
        chosen = patterns.best(found, host, path)
        return None if chosen is None else (found[chosen].account_id, found[chosen].name)

    async def set_schedules(
        self, account: TenantId, name: str, crons: Sequence[str]
    ) -> list[Schedule]:
        """Let cron expressions call a worker, and no others.

        Raises `NoSuchRecord` for the worker, `InvalidInput` for an expression or too many.
        """
        wanted = list(dict.fromkeys(_cron(text) for text in crons))
        if len(wanted) > MAX_SCHEDULES:
            raise InvalidInput("schedules", f"are {len(wanted)}; {MAX_SCHEDULES} are allowed")
        async with self._database.begin() as connection:
            worker = await lock_worker(connection, account, name)
            ours = _schedules.c.worker_id == worker.id
            await connection.execute(
                sa.delete(_schedules).where(ours, _schedules.c.cron.not_in(wanted))
            )
            for cron in wanted:
                row = {"worker_id": worker.id, "cron": cron, "created_ms": self._database.now_ms()}
                await connection.execute(
                    self._database.insert(_schedules).values(row).on_conflict_do_nothing()
                )
        return await self.schedules_of(account, name)

    async def schedules_of(self, account: TenantId, name: str) -> list[Schedule]:
        """Return a worker's cron triggers; raise `NoSuchRecord` for the worker."""
        async with self._database.connect() as connection:
            worker = await require_worker(connection, account, name)
            wanted = (
                sa.select(_schedules)
                .where(_schedules.c.worker_id == worker.id)
                .order_by(_schedules.c.created_ms, _schedules.c.cron)
            )
            rows = (await connection.execute(wanted)).all()
        return [Schedule(cron=row.cron, created_ms=row.created_ms) for row in rows]

    async def schedules(self) -> list[WorkerSchedule]:
        """Return the cron triggers of all workers that have a deployment and whose account may call."""
        accounts = schema.accounts
        wanted = (
            sa.select(workers.c.account_id, workers.c.name, _schedules.c.cron)
            .select_from(_schedules.join(workers).join(accounts))
            .where(
                accounts.c.deleted_ms.is_(None),
                accounts.c.suspended_ms.is_(None),
                sa.exists().where(deployments.c.worker_id == workers.c.id),
            )
            .order_by(workers.c.account_id, workers.c.name, _schedules.c.cron)
        )
        async with self._database.connect() as connection:
            rows = (await connection.execute(wanted)).all()
        return [
            WorkerSchedule(account=row.account_id, worker=row.name, cron=row.cron) for row in rows
        ]

    def _allowed(self, account: TenantId, text: str) -> Pattern:
        pattern = patterns.parse(text)
        if not self._owns(account, pattern):
            raise patterns.refused(
                text,
                f"is at no domain of account {account!r}, which has "
                f"{', '.join(self.domains_of(account))}; whoever runs this installation can add one",
            )
        return pattern

    def _owns(self, account: TenantId, pattern: Pattern) -> bool:
        # `*example.com` would match `notexample.com` elsewhere; here only what is below
        return any(
            pattern.domain == domain or pattern.domain.endswith(f".{domain}")
            for domain in self.domains_of(account)
        )

    async def _add_route(
        self, connection: AsyncConnection, worker: Worker, pattern: Pattern
    ) -> None:
        row = {
            "id": uuid.uuid4().hex,
            "account_id": worker.account,
            "worker_id": worker.id,
            "pattern": pattern.text,
            "host": pattern.host,
        }
        insert = self._database.insert(_routes).values(row).on_conflict_do_nothing()
        if (await connection.execute(insert)).rowcount > 0:
            return
        owner = sa.select(workers.c.name).select_from(_routes.join(workers))
        taken = owner.where(
            _routes.c.pattern == pattern.text, workers.c.account_id == worker.account
        )
        name = (await connection.execute(taken)).scalar_one_or_none()
        if name != worker.name:
            whose = "another account's worker" if name is None else f"worker {name!r}"
            raise patterns.refused(pattern.text, f"leads to {whose} already")


def _cron(text: str) -> str:
    return parse_cron(text).text
