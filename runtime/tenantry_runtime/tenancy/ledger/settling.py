"""Records that wait for the database: tried until they are in it, or it is clear that they never will be."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import sqlalchemy as sa

from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.tenancy.database import Database

from .record import UsageRecord
from .recording import is_about_a_record, record_usage

MAX_PER_TRANSACTION = 500
"""Of SQLite's writers each waits for the others: none is to hold the lock for long."""

ATTEMPT_S = 30.0
"""After which a transaction is given up, and tried again."""

REJECTED_FILE = "rejected.jsonl"

UNREACHABLE = (StoreUnavailable, sa.exc.SQLAlchemyError, OSError, TimeoutError)
"""What a database that is away raises."""

_log = logging.getLogger(__name__)


async def settle(database: Database, records: Sequence[UsageRecord], *, journals: Path) -> int:
    """Record everything, each once; return how many were new.

    What the database will never take, as of an account that it has not, goes to `REJECTED_FILE` in
    `journals`, and the log says so. Raises one of `UNREACHABLE` where trying again may help.
    """
    num_new = 0
    for batch in _batches(records):
        with anyio.fail_after(ATTEMPT_S):
            try:
                num_new += await record_usage(database, batch)
            except Exception as error:
                if not is_about_a_record(error):
                    raise
                num_new += await _one_by_one(database, batch, journals)
    return num_new


def _batches(records: Sequence[UsageRecord]) -> Iterator[Sequence[UsageRecord]]:
    for start in range(0, len(records), MAX_PER_TRANSACTION):
        yield records[start : start + MAX_PER_TRANSACTION]


async def _one_by_one(database: Database, batch: Sequence[UsageRecord], journals: Path) -> int:
    num_new = 0
    for record in batch:
        try:
            num_new += await record_usage(database, [record])
        except Exception as error:
            if not is_about_a_record(error):
                raise
            problem = str(error.orig if isinstance(error, sa.exc.DBAPIError) else error)
            _log.error("the database rejects the record of %s: %s", record.request_id, problem)
            await anyio.to_thread.run_sync(_set_aside, journals / REJECTED_FILE, record, problem)
    return num_new


def _set_aside(path: Path, record: UsageRecord, problem: str) -> None:
    line = msgspec.json.encode({"problem": problem, "record": msgspec.structs.asdict(record)})
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        os.write(fd, line + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
