"""When tokens were last used, to the minute: kept beside the requests, not by each of them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import sqlalchemy as sa

from tenantry_runtime.background import background_tasks
from tenantry_runtime.errors import StoreUnavailable

from . import schema
from .database import Database

MINUTE_MS = 60_000

INTERVAL_S = 60.0
"""Between two writes. What a process has not written is lost when it is killed."""

LAST_WRITE_S = 2.0
"""How long the end of a process waits for it."""

_log = logging.getLogger(__name__)


class LastUse:
    """Collects uses, one per token, until they are written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._used_ms: dict[str, int] = {}

    def note(self, token_id: str, now_ms: int) -> None:
        """Say that a token is in use."""
        self._used_ms[token_id] = now_ms - now_ms % MINUTE_MS

    async def write(self) -> None:
        """Write what is new; raise `StoreUnavailable` and keep it if that fails."""
        if not self._used_ms:
            return
        tokens, written = schema.tokens, self._used_ms
        last_used_ms = sa.bindparam("used_ms", type_=sa.BigInteger)
        later = sa.or_(tokens.c.last_used_ms.is_(None), tokens.c.last_used_ms < last_used_ms)
        update = (
            sa.update(tokens)
            .where(tokens.c.id == sa.bindparam("token_id"), later)
            .values(last_used_ms=last_used_ms)
        )
        # sorted: two edges that lock rows in one order do not wait for each other in a circle
        rows = [{"token_id": id, "used_ms": written[id]} for id in sorted(written)]
        self._used_ms = {}
        try:
            async with self._database.begin() as connection:
                await connection.execute(update, rows)
        except BaseException:
            self._used_ms = written | self._used_ms
            raise

    @asynccontextmanager
    async def keep(self) -> AsyncIterator[None]:
        """Write every minute, and when the block ends."""
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(self._keep_writing)
                yield
        finally:
            # a store that is gone is not waited for
            with anyio.move_on_after(LAST_WRITE_S, shield=True):
                await self._try()

    async def _keep_writing(self) -> None:
        while True:
            await anyio.sleep(INTERVAL_S)
            await self._try()

    async def _try(self) -> None:
        try:
            await self.write()
        except StoreUnavailable as error:
            _log.warning("when tokens were last used is not written yet: %s", error)
