"""Maps of pages, asked of a step loop that is busy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from tenantry_runtime.pool import service
from tenantry_runtime.pool.page_map import PageMaps
from tenantry_runtime.pool.service import NodeService


@pytest.mark.asyncio
async def test_all_who_ask_while_the_loop_is_busy_get_the_map_that_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # as if a turn took longer than the interval
    monkeypatch.setattr(service, "MIN_INTERVAL_S", 0.0)
    asked: list[object] = []
    # Any: nothing else of them is used
    nothing: Any = None
    link: Any = SimpleNamespace(post=asked.append)
    node = NodeService(dispatch=nothing, link=link, receiver=nothing, drain=nothing, incarnation=1)
    answers: list[bytes] = []

    async def ask() -> None:
        answers.append(await node.pages(b"", None))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
        assert (len(asked), answers) == (1, [])
        node.note_pages(PageMaps(pools=()))
        with anyio.fail_after(service.PAGES_TIMEOUT_S / 5):
            while len(answers) < 3:
                await anyio.lowlevel.checkpoint()
