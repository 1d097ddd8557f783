"""Which version of which worker serves, remembered for at most a second.

A deploy is live at once at the edge that took it, and at every other within `MAX_AGE_S`. What is asked for again is read anew in the background
before that, so that requests for a busy worker never wait for the store.
"""

from __future__ import annotations

import logging
import random
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import anyio
from anyio.abc import TaskGroup

from tenantry_runtime.background import background_tasks
from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import AccountSuspended, NoSuchRecord, StoreUnavailable
from tenantry_runtime.tenancy.workers import Deployed
from tenantry_runtime.workers.spec import WorkerVersion

from .addresses import is_possible

MAX_AGE_S = 1.0
REFRESH_AGE_S = 0.5
MAX_KNOWN = 10_000
"""Names that are remembered, also of workers that there are not; the longest unused go."""

MAX_REMEMBERED_CHARS = 512
"""Of a path that may be a route's; longer ones are asked for each time."""

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger(__name__)


class Source(Protocol):
    """What the store knows: `tenancy.workers.WorkerStore`. Both raise `StoreUnavailable`."""

    async def current(self, account: TenantId, worker: str) -> Deployed:
        """Return what answers now; raise `NoSuchRecord` or `AccountSuspended` where nothing does."""
        ...

    async def by_route(self, host: str, path: str) -> tuple[TenantId, str] | None:
        """Return account and worker of the configured route that matches best."""
        ...


@asynccontextmanager
async def open_directory(
    source: Source,
    *,
    draw: Callable[[], float] = random.random,
    on_replaced: Callable[[str], None] = lambda version_id: None,
) -> AsyncIterator[Directory]:
    """Make a directory, as `Directory` is; leaving the block ends what it reads in the background."""
    async with background_tasks() as tasks:
        yield Directory(source, tasks, draw=draw, on_replaced=on_replaced)


class Directory:
    """Finds versions by name, and names by route."""

    def __init__(
        self,
        source: Source,
        tasks: TaskGroup,
        *,
        draw: Callable[[], float] = random.random,
        on_replaced: Callable[[str], None] = lambda version_id: None,
    ) -> None:
        """`draw` returns a number of [0, 1) a request, by which the versions of a split share.

        `on_replaced` hears the id of a version that served and does no more.
        """
        self._source = source
        self._draw = draw
        self._on_replaced = on_replaced
        self._deployed: _Memory[tuple[str, str], Deployed | AccountSuspended | None] = _Memory(
            self._read, tasks
        )
        self._routes: _Memory[tuple[str, str], tuple[TenantId, str] | None] = _Memory(
            lambda key: source.by_route(*key), tasks
        )

    async def version(
        self, account: str, worker: str, *, needs_url: bool = False
    ) -> WorkerVersion | None:
        """Return a version that serves a worker now; None where there is none.

        With `needs_url` a worker that answers at routes alone is none either. Raises
        `AccountSuspended` and `StoreUnavailable`.
        """
        key = (account, worker)
        found = await self._deployed.get(key)
        match found:
            case None:
                return None
            case AccountSuspended():
                raise AccountSuspended
            case _ if needs_url and not found.worker.has_url:
                return None
            case _:
                return found.choose(self._draw())

    async def knows(self, account: str, worker: str) -> bool:
        """Say whether somebody answers, or would, at a name's own URL. Raises `StoreUnavailable`."""
        if not is_possible(account, worker):
            return False
        try:
            return await self.version(account, worker, needs_url=True) is not None
        except AccountSuspended:
            return True

    async def route(self, host: str, path: str) -> tuple[TenantId, str] | None:
        """Return account and worker of the route that matches. Raises `StoreUnavailable`."""
        if len(path) > MAX_REMEMBERED_CHARS:
            return await self._source.by_route(host, path)
        return await self._routes.get((host, path))

    def forget(self, account: TenantId) -> None:
        """Ask the store again for what an account has, which has just changed it."""
        self._deployed.forget(lambda key, _: key[0] == account)
        # also where there was no route: one may have come
        self._routes.forget(lambda _, found: found is None or found[0] == account)

    async def _read(self, key: tuple[str, str]) -> Deployed | AccountSuspended | None:
        account, worker = key
        before = _version_ids(self._deployed.last(key))
        found: Deployed | AccountSuspended | None
        try:
            found = await self._source.current(TenantId(account), worker)
        except NoSuchRecord:
            found = None
        except AccountSuspended as suspended:
            found = suspended
        for version_id in before - _version_ids(found):
            self._on_replaced(version_id)
        return found


def _version_ids(found: Deployed | AccountSuspended | None) -> frozenset[str]:
    if not isinstance(found, Deployed):
        return frozenset()
    return frozenset(version.version_id for version, _ in found.versions)


@dataclass(slots=True, eq=False)
class _Entry(Generic[V]):
    read_s: float = float("-inf")
    known: tuple[V] | None = None
    reading: anyio.Event | None = None
    problem: str | None = None


class _Memory(Generic[K, V]):
    """Remembers what is read, and reads each key once at a time."""

    def __init__(self, source: Callable[[K], Awaitable[V]], tasks: TaskGroup) -> None:
        self._source = source
        self._tasks = tasks
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()

    async def get(self, key: K) -> V:
        """Return what is known and not too old, or else read it. Raises `StoreUnavailable`."""
        known = self._fresh(key)
        return known[0] if known is not None else await self._awaited(key)

    def _fresh(self, key: K) -> tuple[V] | None:
        """Return what is known and not too old; where it will soon be, begin to read it."""
        entry = self._entries.get(key)
        if entry is None or entry.known is None:
            return None
        # in use, so that names which somebody makes up do not push it out
        self._entries.move_to_end(key)
        age_s = time.monotonic() - entry.read_s
        if age_s > MAX_AGE_S:
            return None
        if age_s > REFRESH_AGE_S and entry.reading is None:
            self._begin(key, entry)
        return entry.known

    def last(self, key: K) -> V | None:
        """Return what was last read, however old it is; None where nothing was."""
        entry = self._entries.get(key)
        return None if entry is None or entry.known is None else entry.known[0]

    def forget(self, concerns: Callable[[K, V], bool]) -> None:
        """Take as too old what it concerns, and what is being read: that may be from before."""
        for key, entry in tuple(self._entries.items()):
            if entry.known is None or concerns(key, entry.known[0]):
                self._entries[key] = _Entry(known=entry.known)

    async def _awaited(self, key: K) -> V:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            if len(self._entries) > MAX_KNOWN:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        if entry.reading is None:
            self._begin(key, entry)
        reading = entry.reading
        assert reading is not None
        await reading.wait()
        if entry.problem is not None:
            raise StoreUnavailable(entry.problem)
        assert entry.known is not None
        return entry.known[0]

    def _begin(self, key: K, entry: _Entry[V]) -> None:
        entry.reading = anyio.Event()
        self._tasks.start_soon(self._read, key, entry)

    async def _read(self, key: K, entry: _Entry[V]) -> None:
        asked_s = time.monotonic()
        try:
            entry.known = (await self._source(key),)
            # as old as the question: what was committed since may be missing in the answer
            entry.read_s, entry.problem = asked_s, None
        except StoreUnavailable as error:
            entry.problem = error.reason
        except Exception:
            # whoever asked is told; the edge, which serves others, goes on
            _log.exception("cannot read what %s is", key)
            entry.problem = "an internal error"
        finally:
            reading, entry.reading = entry.reading, None
            assert reading is not None
            reading.set()
