"""The rows by which edges agree on limits: rates, open requests, and which edges there are.

A transaction locks the rates that it reads, in one order for all edges, and writes them before the locks
go. So edges take turns at one tenant's limits, and never wait for each other in a circle. In SQLite a
transaction has the whole database to itself. Where open requests are counted, a row of `rates` serves
as the lock of their place, and as nothing else.

An edge writes rows of open requests of its own only: how many it has, not how many more or fewer. So a
write that is lost or done twice is put right by the next one, and no count is ever negative.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tenantry_runtime.core import TenantId
from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database

from .balances import Balances, RateKey, day_of
from .rates import Level
from .terms import Place

VOID_AFTER_MS = 10_000
"""An edge that has given no sign of life for so long has no open requests. Clocks of edges may differ by
a good part of it."""

FORGET_AFTER_MS = 6 * VOID_AFTER_MS
"""What an edge has written is deleted then; if it was only paused, it comes back and writes it again."""


T = TypeVar("T")


class MissingRates(Exception):
    """Places that nobody has asked about before; `add_rates` makes their rows."""

    def __init__(self, keys: Collection[RateKey]) -> None:
        self.keys = keys
        super().__init__(keys)


class Wanted(NamedTuple):
    """What a transaction needs to know."""

    rates: Collection[RateKey]
    """Those that lock a place among them."""
    places: Collection[Place]
    """Whose open requests count."""
    tenants: Collection[TenantId]
    """Whose neurons count."""


class LimitTables:
    """What one edge reads and writes."""

    def __init__(self, database: Database, edge_id: str) -> None:
        self._database = database
        self._edge_id = edge_id

    async def add_rates(self, keys: Iterable[RateKey]) -> None:
        """Make rows that may be missing, in a transaction of their own: a new row is a lock too."""
        rows = [
            {**_place(key.place), "limit": key.limit, "full_us": 0, "returned_us": 0}
            for key in sorted(keys)
        ]
        async with self._database.begin() as connection:
            insert = self._database.insert(schema.rates).on_conflict_do_nothing()
            await connection.execute(insert, rows)

    async def read(
        self, connection: AsyncConnection, wanted: Wanted, own_open: Mapping[Place, int]
    ) -> Balances:
        """Lock what is wanted and read it; raise `MissingRates` for rows that are not there.

        `own_open` is what `write` is to write of them, with those that are wanted.
        """
        levels = await self._levels(connection, wanted.rates)
        # not earlier: a transaction may wait long for its locks
        now_us = self._database.now_ms() * 1000
        return Balances(
            now_us=now_us,
            levels=levels,
            own_open=dict(own_open),
            others_open=await self._others_open(connection, wanted.places, now_us // 1000),
            spent=await self._spent(connection, wanted.tenants, day_of(now_us)),
        )

    async def write(self, connection: AsyncConnection, balances: Balances) -> None:
        """Write the levels that changed, and what is open here."""
        if balances.changed:
            await connection.execute(_UPDATE, [_level(balances, key) for key in balances.changed])
        if balances.own_open:
            await self._write_open(connection, balances.own_open)

    async def sign(self, own_open: Mapping[Place, int]) -> int:
        """Give a sign of life and return when, in Unix milliseconds.

        An edge that the others have given up writes again what it has open.
        """
        now_ms, edges = self._database.now_ms(), schema.edges
        async with self._database.begin() as connection:
            update = sa.update(edges).where(edges.c.id == self._edge_id).values(seen_ms=now_ms)
            if not (await connection.execute(update)).rowcount:
                row = {"id": self._edge_id, "seen_ms": now_ms}
                await connection.execute(sa.insert(edges).values(row))
                if own_open:
                    await self._write_open(connection, own_open)
        return now_ms

    async def forget_others(self) -> None:
        """Delete what edges have left that are long gone."""
        edges = schema.edges
        gone = sa.select(edges.c.id).where(
            edges.c.seen_ms < self._database.now_ms() - FORGET_AFTER_MS
        )
        # who deletes the same just now need not be waited for
        locked = gone.with_for_update(skip_locked=True)
        async with self._database.begin() as connection:
            await connection.execute(sa.delete(edges).where(edges.c.id.in_(locked)))

    async def leave(self) -> None:
        """Delete what this edge has written."""
        async with self._database.begin() as connection:
            await connection.execute(
                sa.delete(schema.edges).where(schema.edges.c.id == self._edge_id)
            )

    async def _levels(
        self, connection: AsyncConnection, keys: Collection[RateKey]
    ) -> dict[RateKey, Level]:
        if not keys:
            return {}
        found = await connection.execute(
            _LEVELS, {"keys": _padded([(*key.place, key.limit) for key in keys])}
        )
        levels = {
            RateKey(Place(TenantId(account), model), limit): Level(full_us, returned_us)
            for account, model, limit, full_us, returned_us in found
        }
        if missing := set(keys) - levels.keys():
            raise MissingRates(missing)
        return levels

    async def _others_open(
        self, connection: AsyncConnection, places: Collection[Place], now_ms: int
    ) -> dict[Place, int]:
        others = dict.fromkeys(places, 0)
        if not places:
            return others
        found = await connection.execute(
            _OTHERS_OPEN,
            {
                "places": _padded([*map(tuple, places)]),
                "edge_id": self._edge_id,
                "since_ms": now_ms - VOID_AFTER_MS,
            },
        )
        for account, model, num_open in found:
            others[Place(TenantId(account), model)] = int(num_open)
        return others

    async def _spent(
        self, connection: AsyncConnection, tenants: Collection[TenantId], day: str
    ) -> dict[TenantId, int]:
        spent = dict.fromkeys(tenants, 0)
        if not tenants:
            return spent
        found = await connection.execute(_SPENT, {"tenants": _padded([*tenants]), "day": day})
        for account, cost in found:
            spent[TenantId(account)] = int(cost)
        return spent

    async def _write_open(self, connection: AsyncConnection, own_open: Mapping[Place, int]) -> None:
        insert = self._database.insert(schema.open_requests)
        upsert = insert.on_conflict_do_update(
            index_elements=["account_id", "model", "edge_id"],
            set_={"num_open": insert.excluded.num_open},
        )
        rows = [
            {**_place(place), "edge_id": self._edge_id, "num_open": num_open}
            for place, num_open in sorted(own_open.items())
        ]
        await connection.execute(upsert, rows)


# Any, here and below: as the columns have it
def _levels() -> sa.Select[tuple[Any, ...]]:
    rates = schema.rates
    columns = (rates.c.account_id, rates.c.model, rates.c.limit)
    return (
        sa.select(*columns, rates.c.full_us, rates.c.returned_us)
        .where(sa.tuple_(*columns).in_(sa.bindparam("keys", expanding=True)))
        .order_by(*columns)
        .with_for_update()
    )


def _update() -> sa.Update:
    rates = schema.rates
    return (
        sa.update(rates)
        .where(
            rates.c.account_id == sa.bindparam("of_account"),
            rates.c.model == sa.bindparam("of_model"),
            rates.c.limit == sa.bindparam("of_limit"),
        )
        .values(full_us=sa.bindparam("to_full_us"), returned_us=sa.bindparam("to_returned_us"))
    )


def _others_open() -> sa.Select[tuple[Any, ...]]:
    rows, edges = schema.open_requests, schema.edges
    columns = (rows.c.account_id, rows.c.model)
    return (
        sa.select(*columns, sa.func.sum(rows.c.num_open))
        .join_from(rows, edges)
        .where(
            sa.tuple_(*columns).in_(sa.bindparam("places", expanding=True)),
            rows.c.edge_id != sa.bindparam("edge_id"),
            edges.c.seen_ms >= sa.bindparam("since_ms", type_=sa.BigInteger),
        )
        .group_by(*columns)
    )


def _spent() -> sa.Select[tuple[Any, ...]]:
    days = schema.daily_usage
    return (
        sa.select(days.c.account_id, sa.func.sum(days.c.cost))
        .where(
            days.c.account_id.in_(sa.bindparam("tenants", expanding=True)),
            days.c.day == sa.bindparam("day"),
        )
        .group_by(days.c.account_id)
    )


_LEVELS, _UPDATE, _OTHERS_OPEN, _SPENT = _levels(), _update(), _others_open(), _spent()


def _padded(values: list[T]) -> list[T]:
    """Repeat the last until there are a power of two: so there are few statements for PostgreSQL to know."""
    num_wanted = 1 << (len(values) - 1).bit_length()
    return values + values[-1:] * (num_wanted - len(values))


def _place(place: Place) -> dict[str, str]:
    return {"account_id": place.tenant, "model": place.model}


def _level(balances: Balances, key: RateKey) -> dict[str, object]:
    level = balances.levels[key]
    return {
        "of_account": key.place.tenant,
        "of_model": key.place.model,
        "of_limit": key.limit,
        "to_full_us": level.full_us,
        "to_returned_us": level.returned_us,
    }
