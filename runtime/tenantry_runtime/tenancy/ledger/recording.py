"""Records into the database: each once, and the day's sums with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from tenantry_runtime.tenancy import schema
from tenantry_runtime.tenancy.database import Database

from .record import UsageRecord

_SUMS = ("requests", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cost")


_DATA_EXCEPTIONS = "22"
"""Class of PostgreSQL's states."""


class _DayKey(NamedTuple):
    """Of a row of `daily_usage`."""

    account_id: str
    day: str
    model: str
    worker: str


async def record_usage(database: Database, records: Sequence[UsageRecord]) -> int:
    """Insert the records that are not there yet, in one transaction; return how many were not.

    A record that is there has been added to its day's sums when it was inserted.
    """
    usage = schema.usage
    by_id = {record.request_id: record for record in records}
    insert = database.insert(usage).on_conflict_do_nothing().returning(usage.c.request_id)
    rows = [msgspec.structs.asdict(record) for record in by_id.values()]
    async with database.begin() as connection:
        inserted = (await connection.execute(insert, rows)).scalars().all()
        if inserted:
            daily = _daily_sums(by_id[request_id] for request_id in inserted)
            await connection.execute(_add_to_day(database), daily)
    return len(inserted)


def day_of(unix_ms: int) -> str:
    """Return the day in UTC, as YYYY-MM-DD."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%d")


# Any: what SQLAlchemy takes as an upsert of either database
def _add_to_day(database: Database) -> Any:
    daily = schema.daily_usage
    insert = database.insert(daily)
    return insert.on_conflict_do_update(
        index_elements=[*daily.primary_key.columns],
        set_={name: daily.c[name] + insert.excluded[name] for name in _SUMS},
    )


def _daily_sums(records: Iterable[UsageRecord]) -> list[dict[str, object]]:
    sums: defaultdict[_DayKey, list[int]] = defaultdict(lambda: [0] * len(_SUMS))
    for record in records:
        key = _DayKey(record.account_id, day_of(record.ended_ms), record.model, record.worker)
        amounts = (1, *(getattr(record, name) for name in _SUMS[1:]))
        sums[key] = [a + b for a, b in zip(sums[key], amounts, strict=True)]
    # in one order, so that two edges never wait for each other's rows crosswise
    return [
        {**key._asdict(), **dict(zip(_SUMS, amounts, strict=True))}
        for key, amounts in sorted(sums.items())
    ]


def is_about_a_record(error: Exception) -> bool:
    """Whether an error is due to what is recorded, so that trying again is no use."""
    if isinstance(error, sa.exc.IntegrityError | sa.exc.DataError | OverflowError):
        return True
    # a value that PostgreSQL will not take has no class of its own
    cause = error.__cause__
    state = getattr(cause.orig, "sqlstate", None) if isinstance(cause, sa.exc.DBAPIError) else None
    return state is not None and state.startswith(_DATA_EXCEPTIONS)
