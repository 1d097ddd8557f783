from __future__ import annotations

import anyio
import pytest

from tenantry_runtime.errors import StoreUnavailable
from tenantry_runtime.tenancy.sweeping import sweep_forever


@pytest.mark.asyncio
async def test_a_store_that_was_away_is_swept_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    was_away, is_swept = anyio.Event(), anyio.Event()

    async def sweep() -> int:
        if not was_away.is_set():
            was_away.set()
            raise StoreUnavailable("it restarts")
        is_swept.set()
        return 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: sweep_forever(sweep, every_s=0, what="letters"))
        with anyio.fail_after(10):
            await is_swept.wait()
        tasks.cancel_scope.cancel()
    assert "letters are not swept" in caplog.text
    assert "it restarts" in caplog.text
