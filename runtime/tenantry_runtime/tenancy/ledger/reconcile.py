"""What a dead edge's journal says, into the database.

| in the journal | record |
|---|---|
| opened and closed | the one it was closed with, if any |
| opened, not closed | what had been delivered, by its slot; outcome `edge_lost` |

Records are keyed by request, so that it does not matter how often a journal is read: it is deleted
when all of it is in the database and would survive a crash of that.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread

from tenantry_runtime.core import Usage
from tenantry_runtime.tenancy.billing import Interruption
from tenantry_runtime.tenancy.database import Database

from .frames import Closed, End, Opened, Served, read_segment
from .journal import (
    SLOTS_FILE,
    Reached,
    abandoned_journals,
    delete_journal,
    segments_of,
    unwatched,
)
from .record import UsageRecord, billed, make_record
from .settling import settle
from .slots import Delivered, SlotReader

DAMAGED_SUFFIX = ".damaged"
"""Of a segment that is kept, beside the journals."""

_log = logging.getLogger(__name__)


async def reconcile(journals: Path, database: Database, *, reached: Reached = unwatched) -> int:
    """Record what the journals of processes that are gone hold; return how many records were new.

    Edges that do so at one time share the journals among them. Raises one of `settling.UNREACHABLE`
    and leaves the journals where the database is away.
    """
    num_new = 0
    with ExitStack() as locks:
        taken = await anyio.to_thread.run_sync(abandoned_journals, journals)
        for _, lock_fd in taken:
            locks.callback(os.close, lock_fd)
        for directory, _ in taken:
            num_new += await _reconcile(directory, journals, database, reached)
    return num_new


async def _reconcile(directory: Path, journals: Path, database: Database, reached: Reached) -> int:
    found = await anyio.to_thread.run_sync(read_journal, directory, database.now_ms)
    reached("read")
    num_new = await settle(database, found.records, journals=journals)
    reached("reconciled")
    await database.harden()
    await anyio.to_thread.run_sync(_put_away, directory, journals, found.damaged)
    if found.records or found.damaged:
        _log.warning(
            "journal %s of an edge that is gone: %d requests, %d of them not recorded before",
            directory.name,
            len(found.records),
            num_new,
        )
    return num_new


class Found(NamedTuple):
    """What a journal holds."""

    records: list[UsageRecord]
    damaged: list[Path]
    """Segments that could not be read to their end."""


def read_journal(directory: Path, now_ms: Callable[[], int]) -> Found:
    """Read a journal, and make the records of what was open when its process died.

    Those end now, when it is found out: sums of a day that is over do not change any more.
    """
    opened: dict[int, Opened] = {}
    served: dict[int, Served] = {}
    closed: dict[int, Closed] = {}
    damaged: list[Path] = []
    for path in segments_of(directory):
        content = path.read_bytes()
        segment = read_segment(content)
        if segment.end is End.DAMAGED:
            damaged.append(path)
            _log.error(
                "%s is damaged: %d of %d bytes can be read; what ended in the rest is recorded as lost",
                path,
                segment.num_good_bytes,
                len(content),
            )
        for frame in segment.frames:
            match frame:
                case Opened(number=number):
                    opened[number] = frame
                case Served(number=number):
                    served[number] = frame
                case Closed(number=number):
                    closed[number] = frame
    records = [frame.record for frame in closed.values() if frame.record is not None]
    lost = [frame for number, frame in opened.items() if number not in closed]
    if lost:
        slots = _slots_of(directory)
        ended_ms = now_ms()
        records += [_lost(frame, served.get(frame.number), slots, ended_ms) for frame in lost]
    return Found(records, damaged)


def _slots_of(directory: Path) -> SlotReader | None:
    path = directory / SLOTS_FILE
    try:
        return SlotReader(path.read_bytes())
    except (OSError, ValueError) as error:
        _log.error("%s: %s; what was open is recorded as undelivered", path, error)
        return None


def _lost(
    opened: Opened, served: Served | None, slots: SlotReader | None, ended_ms: int
) -> UsageRecord:
    facts = opened.facts
    counts = Delivered() if slots is None else slots.delivered(opened.slot, opened.number)
    delivered = Usage(
        prompt_tokens=facts.input_tokens,
        completion_tokens=counts.output_tokens,
        cached_tokens=counts.cached_tokens,
        reasoning_tokens=counts.reasoning_tokens,
    )
    why = Interruption.EDGE_LOST
    return make_record(
        facts,
        billed(why, delivered=delivered if counts.output_tokens else None, generated=delivered),
        ended_ms=ended_ms,
        outcome=why,
        revision=served.revision if served else "",
        formats=served.formats if served else "",
    )


def _put_away(directory: Path, journals: Path, damaged: list[Path]) -> None:
    """Delete a journal; what of it is damaged is kept for whoever wants to look."""
    for path in damaged:
        shutil.copy2(path, journals / f"{directory.name}-{path.stem}{DAMAGED_SUFFIX}")
    delete_journal(directory)
