"""Runs all attempts in one mode, as the user that it is started as; prints what came of each, as JSON.

`python -m support.escapes.runner LEVEL`
"""

from __future__ import annotations

import os
import random
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec

from support.tiny_host import TinyGuest
from tenantry_runtime.workers.sandbox import (
    GuestCode,
    Level,
    Template,
    TemplateSpec,
    find_interpreter,
    open_template,
    probe,
)
from tenantry_runtime.workers.sandbox.probe import layers_of

from .attempt import PRELUDE, Attempt, numbers
from .catalog import attempts

SECRET = "escape-suite-secret-of-the-runtime"
NEIGHBOR_SECRET = "neighbor-only-secret"

# an attempt that goes on longer is stopped, as the engine's watchdog would
_LIMIT_S = 0.5
_PATIENT_LIMIT_S = 20.0
_NEIGHBOR_LIMIT_S = 5.0


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one attempt."""

    answer: str | None = None
    signal: int | None = None
    code: int | None = None
    was_stopped: bool = False
    neighbor_answer: str | None = None
    """What the neighbor said while the attempt ran and after."""


class Report(msgspec.Struct, kw_only=True):
    """A mode's."""

    level: str
    probe: list[tuple[str, bool, str]]
    uid: int
    outcomes: dict[str, Outcome]
    num_connections: int
    """That the listeners of this machine saw."""
    changed_files: list[str]
    num_descriptors_left: int
    neighbor_sees: str
    """Its own file and secret, in the end."""


@dataclass(slots=True, eq=False)
class Machine:
    """What attempts go for."""

    facts: dict[str, Any]
    listeners: list[socket.socket]
    folder: Path

    def num_connections(self) -> int:
        """Count connections that wait in the listeners."""
        count = 0
        for listener in self.listeners:
            listener.setblocking(False)
            try:
                while True:
                    listener.accept()[0].close()
                    count += 1
            except BlockingIOError:
                continue
        return count

    def changed_files(self) -> list[str]:
        """Return which of its files are not as they were."""
        wanted = {"secret": (SECRET, 0o644), "own": ("own", 0o644)}
        return [
            name
            for name, (text, mode) in wanted.items()
            if not (path := self.folder / name).exists()
            or path.read_text() != text
            or path.stat().st_mode & 0o777 != mode
            or path.stat().st_mtime < 1e9
        ]


@asynccontextmanager
async def machine() -> AsyncIterator[Machine]:
    """Make files, listeners and shared memory that an isolate has no business with."""
    os.environ["TENANTRY_SECRET"] = SECRET
    with tempfile.TemporaryDirectory(prefix="tenantry-escapes-") as made:
        folder = Path(made)
        _make_files(folder)
        abstract = f"tenantry-escapes-{os.getpid()}"
        with (
            socket.create_server(("127.0.0.1", 0)) as tcp,
            socket.socket(socket.AF_UNIX) as by_path,
            socket.socket(socket.AF_UNIX) as by_name,
            tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="tenantry-") as shared,
        ):
            by_path.bind(str(folder / "socket"))
            os.chmod(folder / "socket", 0o777)
            by_name.bind(f"\0{abstract}")
            for listener in (by_path, by_name):
                listener.listen(16)
            shared.write(SECRET.encode())
            shared.flush()
            os.chmod(shared.name, 0o666)
            facts = {
                "secret_file": str(folder / "secret"),
                "own_file": str(folder / "own"),
                "unix_path": str(folder / "socket"),
                "abstract": abstract,
                "port": tcp.getsockname()[1],
                "shared_memory": Path(shared.name).name,
                "shared_key": 0x7465,
                "host_pid": os.getpid(),
                "packages": os.path.dirname(os.path.dirname(msgspec.__file__)),
            }
            yield Machine(facts=facts, listeners=[tcp, by_path, by_name], folder=folder)


def _make_files(folder: Path) -> None:
    folder.chmod(0o755)
    for name, text in (("secret", SECRET), ("own", "own")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)


async def run(level: Level) -> Report:
    """Run all attempts at a level."""
    interpreter = await find_interpreter()
    reports = await probe(interpreter)
    tiny = Path(__file__).parents[1] / "tiny_guest.py"
    spec = TemplateSpec(
        interpreter=interpreter,
        guest=GuestCode(module="tiny_guest", files=(tiny,)),
        floor=level,
        level=level,
        layers=layers_of(reports),
    )
    async with machine() as around, open_template(spec) as template:
        async with await template.spawn() as spawned:
            neighbor = TinyGuest(spawned)
            await settle(neighbor, around)
            around.facts["neighbor_pid"] = spawned.pid
            around.facts["neighbor_uid"] = spawned.uid or 0
            around.facts["neighbor_random"] = await neighbor.value(
                "import random; result = random.random()"
            )
            num_before = len(os.listdir("/proc/self/fd"))
            outcomes = {
                name: await try_out(one, template, neighbor, around.facts)
                for name, one in attempts().items()
            }
            return Report(
                level=template.level.value,
                probe=[(layer.name, layer.works, layer.detail) for layer in reports],
                uid=os.getuid(),
                outcomes=outcomes,
                num_connections=around.num_connections(),
                changed_files=around.changed_files(),
                num_descriptors_left=len(os.listdir("/proc/self/fd")) - num_before,
                neighbor_sees=await neighbor.ask("result = secret, read()"),
            )


async def settle(neighbor: TinyGuest, around: Machine) -> None:
    """Give the neighbor something to lose; at the levels that have files, a file, too."""
    await neighbor.ask(
        f"import builtins\nbuiltins.secret = {NEIGHBOR_SECRET!r}\n"
        "def read():\n"
        "    try: return open('/tmp/of-the-neighbor').read()\n"
        "    except OSError: return 'no file'\n"
        "builtins.read = read\n"
        "try:\n    with open('/tmp/of-the-neighbor', 'w') as f: f.write('its file')\n"
        "except OSError: pass\n"
    )


async def try_out(
    attempt: Attempt, template: Template, neighbor: TinyGuest, facts: dict[str, Any]
) -> Outcome:
    """Run one attempt in a fresh isolate while the neighbor is asked, and once more after it."""
    source = PRELUDE.format(facts=facts, numbers=numbers()) + attempt.code
    outcome = Outcome()
    limit_s = _LIMIT_S if attempt.expected.is_stopped else _PATIENT_LIMIT_S
    async with await template.spawn() as spawned:
        hostile = TinyGuest(spawned)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_attack, hostile, source, limit_s, outcome)
            during = await _ask_neighbor(neighbor)
        spawned.kill()
        status = await spawned.wait()
        if outcome.answer is None and not outcome.was_stopped:
            outcome.signal, outcome.code = status.signal, status.code
    after = await _ask_neighbor(neighbor)
    outcome.neighbor_answer = during if during == after else f"{during} then {after}"
    return outcome


async def _attack(hostile: TinyGuest, source: str, limit_s: float, outcome: Outcome) -> None:
    with anyio.move_on_after(limit_s) as scope:
        outcome.answer = await hostile.ask_or_none(source)
        if outcome.answer is None:
            await hostile.spawned.wait()
    outcome.was_stopped = scope.cancelled_caught


async def _ask_neighbor(neighbor: TinyGuest) -> str:
    number = random.randrange(10**9)
    with anyio.move_on_after(_NEIGHBOR_LIMIT_S):
        answer = await neighbor.ask(f"result = {number}")
        return "right" if answer == f"GOT {number}" else answer
    return f"nothing in {_NEIGHBOR_LIMIT_S:g} s"


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(anyio.run(run, Level(sys.argv[1]))))
