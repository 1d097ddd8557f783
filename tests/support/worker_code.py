"""Workers whose code is written in the test itself."""

from __future__ import annotations

import textwrap
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tenantry.workers.testing import RunningWorker, open_worker


@asynccontextmanager
async def a_worker(
    folder: Path, code: str, *, env: Mapping[str, Any] | None = None, fetch: Any = None
) -> AsyncGenerator[RunningWorker]:
    """Run the code as a worker's main module."""
    main = folder / "entry.py"
    main.write_text(textwrap.dedent(code))
    async with open_worker(main, env=env, fetch=fetch) as worker:
        yield worker
