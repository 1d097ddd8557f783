"""The files of kept logs: written, read, cleared away. Blocking; for a thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from .filters import has_outcome

NEWER, OLDER = ".jsonl", ".1.jsonl"


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of a worker's kept records."""

    records: tuple[msgspec.Raw, ...]
    """JSON as `trace.TraceMessage` has it, oldest first."""
    dropped: int
    """Records of that time that were too many to keep."""
    is_whole: bool
    """Whether there were no more that were asked for."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is looked at of a line."""

    event_timestamp: int = 0
    outcome: str = ""
    dropped: int = 0


_decoder = msgspec.json.Decoder(_Line)


def append(
    directory: Path, account: str, worker: str, lines: Sequence[bytes], file_bytes: int
) -> None:
    """Write lines to a worker's newer file, which becomes the older one when it is full."""
    newer, older = _files(directory, account, worker)
    newer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = b"".join(line + b"\n" for line in lines)
    descriptor = os.open(newer, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(descriptor, "ab") as file:
        is_full = file.tell() > 0 and file.tell() + len(content) > file_bytes
        if not is_full:
            file.write(content)
    if is_full:
        newer.replace(older)
        append(directory, account, worker, lines, file_bytes)


def read_page(
    directory: Path,
    account: str,
    worker: str,
    *,
    limit: int,
    since_ms: int,
    outcomes: frozenset[str] | None,
    search: str | None,
) -> LogPage:
    """Return the newest records that are asked for; a line that was cut is passed over."""
    needle = None if search is None else search.encode()
    records: list[msgspec.Raw] = []
    num_dropped = 0
    is_whole = True
    for line in _newest_first(directory, account, worker):
        try:
            read = _decoder.decode(line)
        except msgspec.DecodeError:
            continue
        if read.event_timestamp < since_ms:
            continue
        if read.dropped:
            num_dropped += read.dropped
            continue
        if outcomes is not None and not has_outcome(read.outcome, outcomes):
            continue
        if needle is not None and needle not in line:
            continue
        if len(records) == limit:
            is_whole = False
            break
        records.append(msgspec.Raw(line))
    return LogPage(records=tuple(records[::-1]), dropped=num_dropped, is_whole=is_whole)


def forget(directory: Path, account: str, worker: str) -> None:
    """Delete a worker's files."""
    for file in _files(directory, account, worker):
        file.unlink(missing_ok=True)


def sweep(directory: Path, oldest_s: float, account_bytes: int, total_bytes: int) -> None:
    """Delete files that are too old, and then the longest untouched until the rest fits.

    First each account's own, so that none takes the room of all.
    """
    found: dict[Path, list[_Kept]] = {}
    for file in directory.glob(f"*/*{NEWER}"):
        with suppress(FileNotFoundError):
            status = file.stat()
            kept = _Kept(status.st_mtime, status.st_size, file)
            found.setdefault(file.parent, []).append(kept)
    left = [each for kept in found.values() for each in _fitting(kept, oldest_s, account_bytes)]
    _fitting(left, oldest_s, total_bytes)


class _Kept(NamedTuple):
    touched_s: float
    num_bytes: int
    file: Path


def _fitting(kept: list[_Kept], oldest_s: float, max_bytes: int) -> list[_Kept]:
    """Delete what does not fit; return the rest."""
    left = sum(each.num_bytes for each in kept)
    ordered = sorted(kept)
    for place, each in enumerate(ordered):
        if each.touched_s >= oldest_s and left <= max_bytes:
            return ordered[place:]
        each.file.unlink(missing_ok=True)
        left -= each.num_bytes
    return []


def _files(directory: Path, account: str, worker: str) -> tuple[Path, Path]:
    folder = directory / account
    return folder / f"{worker}{NEWER}", folder / f"{worker}{OLDER}"


def _newest_first(directory: Path, account: str, worker: str) -> Iterator[bytes]:
    for file in _files(directory, account, worker):
        try:
            content = file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield from reversed(content.split(b"\n"))
