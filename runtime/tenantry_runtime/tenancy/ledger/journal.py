"""One edge process's journal: written by the one thread that owns it, until it is given up.

| in `journal/` | |
|---|---|
| `lock` | held while a journal is made, taken over or deleted |
| `NAME/lock` | held by the edge as long as it lives; free: its process is gone |
| `NAME/slots` | `slots` |
| `NAME/000001.log`, ... | segments (`frames`), in their order |

What a call has appended is in the kernel's hands when it returns, and on the disk after a sync.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tenantry_runtime.durable import sync
from tenantry_runtime.errors import ConfigurationError

from .frames import MAGIC, Closed, Frame, Opened, Served, encode
from .record import RequestFacts, UsageRecord
from .slots import Slots

LOCK_FILE = "lock"
SLOTS_FILE = "slots"
SEGMENT_SUFFIX = ".log"

MAX_SEGMENT_BYTES = 8 << 20
"""Some twenty thousand requests: few enough files, each of them read in a fraction of a second."""

_log = logging.getLogger(__name__)

Reached = Callable[[str], None]
"""Told each point that is passed: where a test lets a process die."""


def unwatched(_point: str) -> None:
    """Be a `Reached` that does nothing."""


class SegmentFile:
    """A segment that is written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        self.num_pins = 0
        """Requests that still need something of it."""
        self.is_synced = True
        self.is_broken = False
        """Whether nothing more is to be appended: the disk would not take it."""
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            self.append(MAGIC)
        except BaseException:
            self.close()
            raise

    def append(self, content: bytes) -> None:
        """Append all or nothing; raise `OSError` for nothing."""
        try:
            if os.write(self._fd, content) < len(content):
                raise OSError("the disk has no room for the journal")
        except OSError:
            # a piece in the middle would make what follows unreadable
            self.is_broken = True
            os.ftruncate(self._fd, self.num_bytes)
            self.is_broken = False
            raise
        self.num_bytes += len(content)
        self.is_synced = False

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError:
            # what the disk has not taken now it may never take, and say no more about it
            self.is_broken = True
            raise

    def close(self) -> None:
        os.close(self._fd)


@dataclass(slots=True, eq=False)
class Ticket:
    """One open request in the journal."""

    number: int
    slot: int
    pinned: list[SegmentFile]


class Journal:
    """Made by `create`."""

    def __init__(
        self,
        directory: Path,
        lock_fd: int,
        *,
        num_slots: int,
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
        reached: Reached = unwatched,
    ) -> None:
        self.directory = directory
        self.num_open = 0
        self._lock_fd = lock_fd
        self._max_segment_bytes = max_segment_bytes
        self._reached = reached
        self._num_requests = 0
        self._num_segments = 0
        self.slots = Slots(directory / SLOTS_FILE, num_slots)
        self._segments = [self._new_segment()]

    def open(self, facts: RequestFacts) -> Ticket | None:
        """Append that a request is about to run; None if there is no slot for it.

        Raises `OSError` where it cannot be appended: then the request is not to run.
        """
        self._num_requests += 1
        number = self._num_requests
        slot = self.slots.take(number)
        if slot is None:
            return None
        self._reached("bound")
        ticket = Ticket(number, slot, [])
        try:
            self._append(Opened(number=number, slot=slot, facts=facts), ticket)
        except BaseException:
            self.slots.give_back(slot)
            raise
        self.num_open += 1
        self._reached("opened")
        return ticket

    def serve(self, ticket: Ticket, *, revision: str, formats: str) -> None:
        """Append what a request runs on; raise `OSError` where that cannot be."""
        self._append(Served(number=ticket.number, revision=revision, formats=formats), ticket)
        self._reached("served")

    def close_request(self, ticket: Ticket, record: UsageRecord | None) -> None:
        """Append how a request has ended; its slot is free, whatever comes of it.

        Raises `OSError` where it cannot be appended.
        """
        self._reached("closing")
        try:
            self._append(Closed(number=ticket.number, record=record), ticket)
        finally:
            self.num_open -= 1
            self.slots.give_back(ticket.slot)
        self._reached("closed")

    def settle(self, ticket: Ticket) -> None:
        """Need nothing of a request any more: its record is elsewhere, or there is none."""
        for segment in ticket.pinned:
            segment.num_pins -= 1
        ticket.pinned.clear()

    def unsynced(self) -> list[SegmentFile]:
        """Return the segments to sync, for all that was appended before this call."""
        segments = [segment for segment in self._segments if not segment.is_synced]
        for segment in segments:
            segment.is_synced = True
        return segments

    @property
    def is_full(self) -> bool:
        """Whether it is time to `roll`."""
        return self._segments[-1].num_bytes >= self._max_segment_bytes

    def roll(self) -> None:
        """Go on in a new segment, if the last one is full; raise `OSError` where that cannot be."""
        if self.is_full:
            self._segments.append(self._new_segment())

    def settled_segments(self) -> list[SegmentFile]:
        """Return the segments that nobody needs, from the first on.

        Only from the first on: a request that was opened in one and closed in the next would look
        as if it were open.
        """
        settled = []
        for segment in self._segments[:-1]:
            if segment.num_pins:
                break
            settled.append(segment)
        return settled

    def drop(self, segments: Iterable[SegmentFile]) -> None:
        """Delete what `settled_segments` has returned, and what is recorded survives a crash of."""
        for segment in segments:
            segment.path.unlink()
            segment.close()
            self._segments.remove(segment)
            self._reached("dropped")

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is needed."""
        return not self.num_open and not any(segment.num_pins for segment in self._segments)

    def close(self, *, delete: bool) -> None:
        """Give it up: to nobody, or to the next edge that reconciles."""
        self.slots.close()
        for segment in self._segments:
            segment.close()
        if delete:
            delete_journal(self.directory)
        os.close(self._lock_fd)

    def _append(self, frame: Frame, ticket: Ticket) -> None:
        if self._segments[-1].is_broken:
            self._segments.append(self._new_segment())
        segment = self._segments[-1]
        segment.append(encode(frame))
        if segment not in ticket.pinned:
            ticket.pinned.append(segment)
            segment.num_pins += 1

    def _new_segment(self) -> SegmentFile:
        self._num_segments += 1
        path = self.directory / f"{self._num_segments:06}{SEGMENT_SUFFIX}"
        segment = SegmentFile(path)
        sync(self.directory)
        return segment


def create_journal(
    journals: Path,
    *,
    num_slots: int,
    max_segment_bytes: int = MAX_SEGMENT_BYTES,
    reached: Reached = unwatched,
) -> Journal:
    """Make a journal of this process; raise `ConfigurationError` where that cannot be."""
    try:
        with _exclusively(journals):
            directory = journals / uuid.uuid4().hex
            directory.mkdir(mode=0o700)
            lock_fd = os.open(directory / LOCK_FILE, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sync(journals)
        return Journal(
            directory,
            lock_fd,
            num_slots=num_slots,
            max_segment_bytes=max_segment_bytes,
            reached=reached,
        )
    except OSError as error:
        problem = f"the journal in {journals} cannot be written: {error}"
        raise ConfigurationError(problem) from error


def abandoned_journals(journals: Path) -> list[tuple[Path, int]]:
    """Take over the journals whose processes are gone: directories, and the locks on them.

    Each is this process's alone until its lock is closed.
    """
    taken: list[tuple[Path, int]] = []
    with _exclusively(journals):
        for directory in sorted(path for path in journals.iterdir() if path.is_dir()):
            if not (directory / LOCK_FILE).exists():
                _clear_away(directory)
                continue
            lock_fd = _lock_if_free(directory / LOCK_FILE)
            if lock_fd is not None:
                taken.append((directory, lock_fd))
    return taken


def segments_of(directory: Path) -> Sequence[Path]:
    """Return a journal's segments in their order."""
    return sorted(directory.glob(f"*{SEGMENT_SUFFIX}"), key=lambda path: int(path.stem))


def delete_journal(directory: Path) -> None:
    """Delete a journal by whoever holds its lock. Its segments go first, in their order."""
    # whoever looks for journals meanwhile would find one without a lock, and clear it away too
    with _exclusively(directory.parent):
        for segment in segments_of(directory):
            segment.unlink()
        shutil.rmtree(directory)


def _clear_away(directory: Path) -> None:
    """Delete what a process left that was killed as it made or deleted its journal."""
    if not segments_of(directory):
        shutil.rmtree(directory, ignore_errors=True)
        return
    # somebody else's doing
    _log.error(
        "%s has requests and no lock: make an empty file %s when no edge uses it any more",
        directory,
        directory / LOCK_FILE,
    )


def _lock_if_free(path: Path) -> int | None:
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # deleted meanwhile by its holder
        is_there = os.fstat(fd).st_nlink > 0
    except BlockingIOError:
        is_there = False
    except BaseException:
        os.close(fd)
        raise
    if not is_there:
        os.close(fd)
        return None
    return fd


@contextmanager
def _exclusively(journals: Path) -> Iterator[None]:
    journals.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (journals / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
