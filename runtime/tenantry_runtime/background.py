"""Tasks that run beside a block and end with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncIterator[TaskGroup]:
    """Cancel the tasks when the block ends; what the block raises comes out as it is, in no group."""
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    try:
        yield tasks
    finally:
        tasks.cancel_scope.cancel()
        # without the block's exception, which would come out wrapped in a group
        await tasks.__aexit__(None, None, None)
