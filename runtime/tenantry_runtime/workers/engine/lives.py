"""Isolates from fork to end, each in a task of its own, and those kept blank for whoever comes."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from tenantry_runtime.workers.isolate import EndingKind
from tenantry_runtime.workers.outcome import Outcome
from tenantry_runtime.workers.sandbox import SpawnFailed

from .config import EngineConfig
from .interface import Confined, Exit, Nursery, TemplateKey
from .outside import Outside
from .verdict import Verdict, of_ending

REFILL_DELAY_S = 0.01
"""After an isolate was taken: the fork would take CPU time from the load that it was taken for."""
RETRY_S = 1.0
"""After the machine has failed to make a blank isolate."""
EXIT_S = 1.0
"""That a process which was told to end, or closed its stream, has until nobody waits for its status."""

DEFAULT_MEMORY_BYTES = 128 << 20
"""What blank isolates are made with: a limit cannot be changed from outside."""

_BASE = TemplateKey()
_log = logging.getLogger(__name__)


class Occupant(Protocol):
    """Who has an isolate."""

    def bury(self, verdict: Verdict) -> None:
        """Hear that the isolate has ended, and why, as far as its process tells; once at least."""
        ...


class Blank:
    """An isolate without a version, or the one that it has become."""

    __slots__ = ("confined", "key", "occupant", "outside")

    def __init__(self, key: TemplateKey, confined: Confined, outside: Outside) -> None:
        self.key = key
        self.confined = confined
        self.outside = outside
        self.occupant: Occupant | None = None

    def bury(self, verdict: Verdict) -> None:
        """Tell whoever has it that it has ended."""
        if self.occupant is not None:
            self.occupant.bury(verdict)


class Lives:
    """All isolates of an engine, in a task group of its owner's."""

    def __init__(
        self, nursery: Nursery, tasks: TaskGroup, config: EngineConfig, *, now: Callable[[], float]
    ) -> None:
        self._nursery = nursery
        self._tasks = tasks
        self._config = config
        self._now = now
        self._blanks: dict[TemplateKey, deque[Blank]] = {}
        self._used_s: dict[TemplateKey, float] = {}
        self._is_short = anyio.Event()
        self._is_short.set()
        self._is_filled = anyio.Event()
        self.num_isolates = 0
        """All that there are, blank ones and those that begin or end too."""
        if config.share_templates:
            self._blanks[_BASE] = deque()

    @property
    def num_blank(self) -> int:
        return sum(map(len, self._blanks.values()))

    async def obtain(self, key: TemplateKey, memory_bytes: int) -> Blank:
        """Take a blank isolate that is ready, or make one. Raises `SpawnFailed`."""
        blanks = self._blanks.setdefault(key, deque())
        self._used_s[key] = self._now()
        self._is_short.set()
        if self._is_filled.is_set():
            self._is_filled = anyio.Event()
        while blanks and memory_bytes == DEFAULT_MEMORY_BYTES:
            blank = blanks.popleft()
            # one that has ended a moment ago is still among them
            if blank.confined.isolate.ending is None:
                return blank
        return await self._spawn(key, memory_bytes)

    async def filled(self) -> None:
        """Return when as many blank isolates are ready as are kept, or as there is room for."""
        await self._is_filled.wait()

    def tidy(self, now_s: float) -> None:
        """Replace blank isolates that have ended; keep none for what nobody has asked for in long."""
        self._is_short.set()
        for key, used_s in tuple(self._used_s.items()):
            if now_s - used_s >= self._config.template_idle_s and key != _BASE:
                del self._used_s[key]
                for blank in self._blanks.pop(key):
                    blank.confined.process.kill()
        self._nursery.tidy(now_s)

    async def run(self) -> None:
        """Keep blank isolates ready until it is cancelled."""
        while True:
            await self._is_short.wait()
            self._is_short = anyio.Event()
            await anyio.sleep(REFILL_DELAY_S)
            try:
                for key in tuple(self._blanks):
                    await self._refill(key)
                if not self._is_short.is_set():
                    self._is_filled.set()
            except SpawnFailed as error:
                _log.error("no blank isolate could be made: %s", error)
                await anyio.sleep(RETRY_S)
                self._is_short.set()

    async def _refill(self, key: TemplateKey) -> None:
        config = self._config
        target = config.blank_isolates if key == _BASE else config.blank_isolates_each
        while (blanks := self._blanks.get(key)) is not None and len(blanks) < target:
            if self.num_isolates >= config.max_isolates:
                return
            blank = await self._spawn(key, DEFAULT_MEMORY_BYTES)
            if blank.confined.isolate.ending is None:
                # where it is asked for again
                self._blanks.setdefault(key, deque()).append(blank)

    async def _spawn(self, key: TemplateKey, memory_bytes: int) -> Blank:
        coming = _Coming()
        self.num_isolates += 1
        self._tasks.start_soon(self._live, key, memory_bytes, coming)
        await coming.arrived.wait()
        if coming.blank is None:
            raise SpawnFailed(str(coming.problem)) from coming.problem
        return coming.blank

    async def _live(self, key: TemplateKey, memory_bytes: int, coming: _Coming) -> None:
        outside = Outside()
        verdict = Verdict(Outcome.CANCELED, "the runtime ends")
        try:
            async with self._nursery.spawn(
                key, memory_bytes=memory_bytes, outside=outside
            ) as confined:
                blank = Blank(key, confined, outside)
                coming.blank = blank
                coming.arrived.set()
                await confined.isolate.ended.wait()
                verdict = await _autopsy(confined)
                self._discard(blank, verdict)
                # whoever waits for the reason does not wait until all is cleared away
                blank.bury(verdict)
        except SpawnFailed as error:
            coming.problem = error
        # a fault in here must not end all other isolates with this one
        except Exception as error:
            _log.exception("an isolate was lost")
            coming.problem = error
        finally:
            self.num_isolates -= 1
            coming.arrived.set()
            if coming.blank is not None:
                coming.blank.bury(verdict)

    def _discard(self, blank: Blank, verdict: Verdict) -> None:
        blanks = self._blanks.get(blank.key, ())
        if blank in blanks:
            _log.warning("a blank isolate has ended: %s", verdict.message)
            self._blanks[blank.key].remove(blank)


class _Coming:
    """An isolate that is being made for somebody."""

    __slots__ = ("arrived", "blank", "problem")

    def __init__(self) -> None:
        self.arrived = anyio.Event()
        self.blank: Blank | None = None
        self.problem: Exception | None = None


async def _autopsy(confined: Confined) -> Verdict:
    ending = confined.isolate.ending
    assert ending is not None
    if ending.kind is not EndingKind.CLOSED:
        confined.process.kill()
    with anyio.move_on_after(EXIT_S):
        return of_ending(ending, await confined.process.wait())
    # it closed its stream and lives on; leaving its scope ends it
    return of_ending(ending, Exit())
