"""Templates whose isolates run the tiny guest."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from support.tiny_host import TinyGuest
from tenantry_runtime.workers.sandbox import (
    GuestCode,
    Interpreter,
    IsolateRlimits,
    Layers,
    Level,
    Template,
    TemplateSpec,
    UidRange,
    find_interpreter,
    open_template,
    probe_layers,
)

TINY = GuestCode(module="tiny_guest", files=(Path(__file__).with_name("tiny_guest.py"),))


@asynccontextmanager
async def a_template(
    guest: GuestCode = TINY, uids: UidRange | None = None, **options: Any
) -> AsyncIterator[Template]:
    """Open one at the best level of this machine."""
    interpreter, layers = await anyio.to_thread.run_sync(_machine)
    options = {"layers": layers, **options}
    spec = TemplateSpec(interpreter=interpreter, guest=guest, floor=Level.NONE, **options)
    async with open_template(spec, uids=uids) as template:
        yield template


@asynccontextmanager
async def a_guest(
    template: Template, limits: IsolateRlimits | None = None
) -> AsyncIterator[TinyGuest]:
    """Spawn an isolate."""
    async with await template.spawn(limits) as spawned:
        yield TinyGuest(spawned)


@cache
def _machine() -> tuple[Interpreter, Layers]:
    """Ask once for all tests; in a thread, which has no event loop yet."""

    async def ask() -> tuple[Interpreter, Layers]:
        interpreter = await find_interpreter()
        return interpreter, await probe_layers(interpreter)

    return anyio.run(ask)


async def hold_isolates(level: str) -> None:
    """Print the process ids of a template and of two isolates, and never end."""
    async with a_template(level=Level(level)) as template:
        isolates = [await template.spawn() for _ in range(2)]
        sys.stdout.write(f"{template.pid} {' '.join(str(each.pid) for each in isolates)}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(hold_isolates, sys.argv[1])
