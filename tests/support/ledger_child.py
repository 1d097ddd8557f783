"""A process that keeps a ledger and dies at a point: `python -m support.ledger_child SCRIPT`.

Its standard output is what clients have seen: a line for each time that they were sent something,
written before anything else happens.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import sqlalchemy as sa

from support.fake_node import environment
from support.ledgers import a_usage, an_opening, dies_at
from tenantry_runtime.tenancy import Interruption, open_store
from tenantry_runtime.tenancy.ledger import JournaledLedger, open_ledger

NUM_REQUESTS = 6
NUM_STEPS = 5
CACHED = 64


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """What the child does. Requests run side by side; of each six the last three break off."""

    state_dir: str
    url: str | None = None
    prefix: str = "r"
    point: str = ""
    """Where it dies: of the ledger's points, `delivered`, or `commit` of a database's transaction."""
    times: int = 1
    num_requests: int = NUM_REQUESTS
    max_segment_bytes: int | None = None


class Seen(msgspec.Struct, kw_only=True):
    """What a client saw of a request."""

    delivered: int = 0
    is_whole: bool = False


def run_child(script: Script) -> tuple[int, dict[str, Seen]]:
    """Run a child to its end; return its exit code and what its clients saw."""
    ran = subprocess.run(
        [sys.executable, "-m", "support.ledger_child", msgspec.json.encode(script).decode()],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        env=environment(),
    )
    seen: dict[str, Seen] = {}
    for line in ran.stdout.splitlines():
        request_id, what = line.split()
        client = seen.setdefault(request_id, Seen())
        if what == "whole":
            client.is_whole = True
        else:
            client.delivered = int(what)
    return ran.returncode, seen


def generated(number: int) -> int:
    """Return how many tokens are generated for a request by its end."""
    return NUM_STEPS * (number + 1)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _see(request_id: str, what: object) -> None:
    os.write(1, f"{request_id} {what}\n".encode())


class _Broken(Exception):
    pass


async def _run(script: Script) -> None:
    reached = dies_at(script.point, _die, times=script.times)
    async with open_store(Path(script.state_dir), url=script.url) as store:
        if script.point == "commit":
            engine = store.database._writing.sync_engine
            sa.event.listen(engine, "commit", lambda _: reached("commit"))
        async with (
            open_ledger(
                store.database,
                Path(script.state_dir) / "journal",
                max_open=8,
                max_segment_bytes=script.max_segment_bytes,
                reached=reached,
            ) as ledger,
            anyio.create_task_group() as tasks,
        ):
            for number in range(script.num_requests):
                if number and number % NUM_REQUESTS == 0:
                    # more than one round of the ledger
                    await anyio.wait_all_tasks_blocked()
                tasks.start_soon(_request, ledger, script.prefix, number, reached)


async def _request(ledger: JournaledLedger, prefix: str, number: int, reached: object) -> None:
    assert callable(reached)
    request_id = f"{prefix}-{number}"
    is_broken = number % NUM_REQUESTS >= NUM_REQUESTS // 2
    usage = a_usage(0)
    try:
        async with ledger.open(an_opening(request_id)) as entry:
            entry.served_by(revision="f" * 64, formats="decode=bf16/bf16")
            for step in range(1, NUM_STEPS):
                usage = a_usage(step * (number + 1), cached=CACHED, reasoning=step)
                entry.generated(usage)
                if step < NUM_STEPS - 1:
                    entry.delivered(usage)
                    reached("delivered")
                    _see(request_id, usage.completion_tokens)
                await anyio.lowlevel.checkpoint()
            if is_broken:
                entry.interrupted([*Interruption][number % 3])
                raise _Broken
            entry.complete(a_usage(generated(number), reasoning=NUM_STEPS), "stop")
    except _Broken:
        return
    _see(request_id, "whole")


if __name__ == "__main__":
    anyio.run(_run, msgspec.json.decode(sys.argv[1], type=Script))
