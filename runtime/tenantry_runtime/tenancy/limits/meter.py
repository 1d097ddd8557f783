"""The one task of an edge that asks the store about limits, for all requests that wait meanwhile.

A transaction takes as long for a hundred requests as for one, so what comes while one runs goes into the
next. Corrections of requests that have ended go along. Nothing else of an edge waits for the store:

| who | waits for |
|---|---|
| a request that comes | the transaction that is under way, and the next one |
| a request that ends | nothing |
| a request that is cancelled | nothing; if it is admitted all the same, it is over at once |

Where the store does not answer, nobody is admitted: `StoreUnavailable` after `timeout_s` at most. What
has ended meanwhile is kept, and written when the store is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import Never

import anyio
import anyio.lowlevel
import sqlalchemy as sa

from tenantry_runtime.errors import LimitExceeded, StoreUnavailable
from tenantry_runtime.tenancy.database import Database

from . import rates
from .balances import Admission, Balances, RateKey, Settlement
from .tables import FORGET_AFTER_MS, VOID_AFTER_MS, LimitTables, MissingRates, Wanted
from .terms import CONCURRENT, REQUESTS, TOKENS, Place, Terms
from .waiting import Outcome, Waiting, WaitingRoom

TIMEOUT_S = 5.0
"""For the store's answer. Every transaction here is a few statements."""

MAX_GROUP = 256
"""Requests of one transaction: enough that its own time is little of each, and that it ends soon."""

PAUSE_S = 0.5
"""After a failure: a store that is in trouble is not asked all the time."""

SIGN_EVERY_MS = VOID_AFTER_MS // 4

_ATTEMPTS = 3
"""At one transaction: the first may lack rows, the second be of an edge that the others gave up."""

_log = logging.getLogger(__name__)


class Meter:
    """Admits requests, and keeps account of them. `run` has to run beside."""

    def __init__(
        self,
        database: Database,
        *,
        edge_id: str,
        noting: Callable[[Balances], None],
        timeout_s: float = TIMEOUT_S,
        room: WaitingRoom | None = None,
    ) -> None:
        """`noting` is told what each transaction has come to know."""
        self.own_open: dict[Place, int] = {}
        """Requests of this edge, where they are counted."""
        self._database = database
        self._tables = LimitTables(database, edge_id)
        self._noting = noting
        self._timeout_s = timeout_s
        self._room = room or WaitingRoom()
        self._settlements: list[Settlement] = []
        self._unwritten: set[Place] = set()
        """Places of which the store may not know how many requests are open."""
        self._signed_ms = self._forgot_ms = 0
        self._is_committing = False
        """Whether the latest transaction got to where nobody knows if it is committed."""
        self._work = anyio.Event()

    async def admit(self, terms: Terms, num_tokens: int) -> Admission:
        """Wait until it is known whether a request may run; what is returned has to be settled.

        Raises `RateExceeded`, `QuotaExceeded`, `CapacityExceeded` where too many wait, or
        `StoreUnavailable`.
        """
        waiting = Waiting(terms, num_tokens)
        self._room.enter(waiting)
        self._work.set()
        try:
            with anyio.fail_after(self._timeout_s):
                await waiting.answered.wait()
        except BaseException as error:
            waiting.is_gone = True
            self._room.leave(waiting)
            if isinstance(waiting.outcome, Admission):
                self.settle(waiting.outcome, 0)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable("no answer in time") from None
            raise
        return waiting.result()

    def settle(self, admission: Admission, num_tokens: int) -> None:
        """End what has been admitted: it came to so many tokens."""
        terms, tokens = admission.terms, admission.tokens
        if terms.concurrent_requests is not None:
            self._count_open(terms.place, -1)
            self._unwritten.add(terms.place)
        if tokens is not None:
            assert terms.tokens_per_minute is not None
            used_us = rates.cost_us(num_tokens, terms.tokens_per_minute)
            if used_us != tokens.cost_us:
                self._settlements.append(Settlement(terms.place, tokens, used_us))
        self._work.set()

    async def run(self) -> Never:
        """Serve whoever waits, until it is cancelled."""
        while True:
            await anyio.lowlevel.checkpoint_if_cancelled()
            if not (self._room or self._settlements or self._unwritten):
                await self._until_work()
            try:
                # a transaction that is broken off costs its connection, and nobody knows what it did
                with anyio.CancelScope(shield=True):
                    await self._turn(self._room.next(MAX_GROUP))
            except StoreUnavailable as error:
                _log.warning("limits: %s", error)
                await anyio.sleep(PAUSE_S)

    async def leave(self) -> None:
        """Write down what has ended, and that this edge is gone; after `run`."""
        for waiting in self._room.next(len(self._room)):
            waiting.answer(StoreUnavailable("this edge ends"))
        try:
            await self._turn([])
            with anyio.fail_after(self._timeout_s):
                await self._tables.leave()
        except (StoreUnavailable, TimeoutError):
            # the others see that it gives no sign of life
            _log.warning("limits: the store was not told that this edge ends")

    async def _until_work(self) -> None:
        self._work = anyio.Event()
        with anyio.move_on_after(SIGN_EVERY_MS / 1000 if self.own_open else inf):
            await self._work.wait()

    async def _turn(self, group: Sequence[Waiting]) -> None:
        """Do what there is to do, in one transaction. Raises `StoreUnavailable`."""
        settlements, self._settlements = self._settlements, []
        unwritten, self._unwritten = self._unwritten, set()
        outcomes: list[Outcome] = [StoreUnavailable("no answer in time") for _ in group]
        try:
            with anyio.fail_after(self._timeout_s):
                outcomes = await self._transact(group, settlements, unwritten)
        except BaseException as error:
            # counts can be written twice, and so can what takes more; what gives back must not be
            # where it may have been committed
            self._settlements[:0] = [
                settlement
                for settlement in settlements
                if not self._is_committing or settlement.used_us > settlement.tokens.cost_us
            ]
            self._unwritten |= unwritten | _counted(group)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable("no answer in time") from None
            if isinstance(error, sa.exc.DBAPIError):
                raise StoreUnavailable(str(error.orig)) from error
            raise
        finally:
            for waiting, outcome in zip(group, outcomes, strict=True):
                self._answer(waiting, outcome)

    def _answer(self, waiting: Waiting, outcome: Outcome) -> None:
        if isinstance(outcome, Admission):
            if outcome.terms.concurrent_requests is not None:
                self._count_open(outcome.terms.place, 1)
            if waiting.is_gone:
                self.settle(outcome, 0)
        waiting.answer(outcome)

    async def _transact(
        self,
        group: Sequence[Waiting],
        settlements: Sequence[Settlement],
        unwritten: Collection[Place],
    ) -> list[Outcome]:
        wanted = _wanted(group, settlements)
        places = {*wanted.places, *unwritten}
        for _ in range(_ATTEMPTS):
            self._is_committing = False
            if places or self.own_open:
                await self._sign()
            if not (group or settlements or places):
                return []
            try:
                async with self._database.begin() as connection:
                    own_open = {place: self.own_open.get(place, 0) for place in places}
                    balances = await self._tables.read(connection, wanted, own_open)
                    for settlement in settlements:
                        balances.settle(settlement)
                    outcomes = [_judged(balances, waiting) for waiting in group]
                    await self._tables.write(connection, balances)
                    self._is_committing = True
            except MissingRates as missing:
                await self._tables.add_rates(missing.keys)
            except sa.exc.IntegrityError:
                # the others have given this edge up since its last sign of life
                self._signed_ms = 0
            else:
                self._noting(balances)
                return outcomes
        raise StoreUnavailable("other edges keep deleting what this one writes")

    async def _sign(self) -> None:
        """Give a sign of life if it is time; now and then see which edges give none."""
        if abs(self._database.now_ms() - self._signed_ms) < SIGN_EVERY_MS:
            return
        self._signed_ms = await self._tables.sign(self.own_open)
        if abs(self._signed_ms - self._forgot_ms) >= FORGET_AFTER_MS:
            await self._tables.forget_others()
            self._forgot_ms = self._signed_ms

    def _count_open(self, place: Place, change: int) -> None:
        num_open = self.own_open.get(place, 0) + change
        assert num_open >= 0
        if num_open:
            self.own_open[place] = num_open
        else:
            # one less place to remember
            del self.own_open[place]


def _judged(balances: Balances, waiting: Waiting) -> Outcome:
    if waiting.is_gone:
        return StoreUnavailable("nobody waits any more")
    try:
        return balances.admit(waiting.terms, waiting.num_tokens)
    except LimitExceeded as refused:
        return refused


def _counted(group: Sequence[Waiting]) -> set[Place]:
    """Return the places in which open requests count."""
    return {
        waiting.terms.place for waiting in group if waiting.terms.concurrent_requests is not None
    }


def _wanted(group: Sequence[Waiting], settlements: Sequence[Settlement]) -> Wanted:
    keys = {RateKey(settlement.place, TOKENS) for settlement in settlements}
    tenants = set()
    for waiting in group:
        terms = waiting.terms
        limits = {
            REQUESTS: terms.requests_per_minute,
            TOKENS: terms.tokens_per_minute,
            CONCURRENT: terms.concurrent_requests,
        }
        keys.update(RateKey(terms.place, name) for name, limit in limits.items() if limit)
        if terms.daily_neurons is not None:
            tenants.add(terms.place.tenant)
    return Wanted(keys, _counted(group), tenants)
