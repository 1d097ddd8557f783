"""Templates, and the isolates that are forked from them."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from support.templates import TINY, a_guest, a_template
from tenantry_runtime.workers.sandbox import (
    ExitStatus,
    GroupLimits,
    GuestCode,
    IsolateRlimits,
    Layers,
    Level,
    SandboxTooWeak,
    Spawned,
    SpawnFailed,
    TemplateFailed,
    UidRange,
)

pytestmark = [pytest.mark.isolates, pytest.mark.asyncio]

KILLED = ExitStatus(signal=9, code=None)
PATIENCE_MS = 10_000
NOTHING = Layers(
    own_namespaces=False, user_namespace=False, own_users=False, landlock=0, filter=True
)
"""As on a machine where only the filter of system calls works."""


WALLS = {
    "filter": NOTHING,
    "landlock": replace(NOTHING, filter=False, landlock=7),
    "namespaces": replace(NOTHING, filter=False, own_namespaces=True, own_users=True),
}
REFUSED = "(PermissionError|FileNotFoundError|ProcessLookupError|OSError|ConnectionRefusedError): "


def has_ended(pidfd: int) -> bool:
    """Wait for a process's end, not for long."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(PATIENCE_MS))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def groups_below(folder: str) -> list[str]:
    return [path.name for path in Path(folder).rglob("tenantry-*") if path.is_dir()]


def make_secret(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "secret").write_text("a secret")


def make_dependency(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "acme_dependency.py").write_text("import os\npid, uid = os.getpid(), os.getuid()\n")
    # what `site` would run
    (folder / "acme.pth").write_text("import acme_dependency\n")


async def test_an_isolate_answers_and_ends_with_its_scope() -> None:
    async with a_template() as template:
        async with a_guest(template) as guest:
            pidfd = os.dup(guest.spawned.pidfd)
            assert await guest.ask("result = 6 * 7") == "GOT 42"
            assert template.num_alive == 1
        assert template.num_alive == 0
        assert guest.spawned.status == KILLED
    assert has_ended(pidfd)
    os.close(pidfd)


async def test_how_an_isolate_ends_is_told() -> None:
    async with a_template() as template:
        async with a_guest(template) as guest:
            assert await guest.ask_or_none("import os; os._exit(7)") is None
            assert await guest.spawned.wait() == ExitStatus(signal=None, code=7)
        async with a_guest(template) as guest:
            assert await guest.ask_or_none("import ctypes; ctypes.string_at(0)") is None
            assert await guest.spawned.wait() == ExitStatus(signal=11, code=None)


async def test_the_handle_of_an_isolate_is_readable_when_it_has_ended() -> None:
    async with a_template() as template, a_guest(template) as guest:
        guest.spawned.kill()
        with anyio.fail_after(10):
            await anyio.wait_readable(guest.spawned.pidfd)


async def test_killing_the_template_kills_all_its_isolates() -> None:
    async with a_template() as template:
        isolates = [await template.spawn() for _ in range(5)]
        os.kill(template.pid, signal.SIGKILL)

        with anyio.fail_after(10):
            await template.wait()
            assert [await isolate.wait() for isolate in isolates] == [KILLED] * 5
        assert all(has_ended(isolate.pidfd) for isolate in isolates)
        with pytest.raises(SpawnFailed, match="has ended"):
            await template.spawn()
        for isolate in isolates:
            await isolate.aclose()


async def test_leaving_the_scope_ends_isolates_that_are_open(tmp_path: Path) -> None:
    async with a_template(directory=str(tmp_path)) as template:
        isolate = await template.spawn()
        assert names_in(tmp_path)

    assert await isolate.wait() == KILLED
    assert has_ended(isolate.pidfd)
    await isolate.aclose()
    assert names_in(tmp_path) == []


async def test_isolates_that_live_are_users_of_their_own() -> None:
    uids = UidRange(first=1_900_000_000, count=8)
    spawned: list[Spawned] = []
    async with a_template(uids=uids) as template, a_template(uids=uids) as another:
        async with anyio.create_task_group() as tasks:

            async def spawn(number: int) -> None:
                spawned.append(await (template, another)[number % 2].spawn())

            for number in range(8):
                tasks.start_soon(spawn, number)
        assert sorted(each.uid or 0 for each in spawned) == list(
            range(1_900_000_000, 1_900_000_008)
        )
        with pytest.raises(SpawnFailed, match="all 8 user ids"):
            await template.spawn()
        for each in spawned:
            await each.aclose()
        assert list(uids) == []


@pytest.mark.parametrize("num_turns", range(0, 12, 2))
async def test_a_spawn_that_is_cancelled_leaves_nothing(num_turns: int) -> None:
    uids = UidRange(first=1_900_000_000, count=8)
    num_before = len(os.listdir("/proc/self/fd"))
    async with a_template(uids=uids) as template:

        async def spawn() -> None:
            # one may be there before the cancel
            await (await template.spawn()).aclose()

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(spawn)
            for _ in range(num_turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(10):
            while template.num_alive:
                await anyio.lowlevel.checkpoint()
        assert list(uids) == []
    assert len(os.listdir("/proc/self/fd")) == num_before


async def test_below_the_floor_nothing_starts() -> None:
    with pytest.raises(SandboxTooWeak, match="below the floor 'no-namespace'") as raised:
        async with a_template(layers=NOTHING, level=Level.NO_NAMESPACE):
            raise AssertionError
    assert raised.value.floor is Level.NO_NAMESPACE


async def test_signals_stay_inside_by_the_filter_alone() -> None:
    # neither Landlock nor a PID namespace: what libc needs `tgkill` for must not reach others
    async with a_template(layers=NOTHING, level=Level.NONE) as template, a_guest(template) as guest:
        host = os.getpid()
        for call in (f"os.kill({host}, 0)", "os.kill(os.getppid(), 0)", "os.kill(-1, 0)"):
            assert (await guest.ask(f"import os; {call}")).startswith("PermissionError")
        thread = f"import ctypes; result = ctypes.CDLL(None).tgkill({host}, {host}, 0)"
        assert await guest.ask(thread) == "GOT -1"
        assert await guest.ask("import os; result = os.kill(os.getpid(), 0)") == "GOT None"
        raised = (
            "import signal; signal.signal(10, lambda *_: None); result = signal.raise_signal(10)"
        )
        assert await guest.ask(raised) == "GOT None"


@pytest.mark.parametrize("wall", WALLS)
async def test_each_wall_holds_alone(wall: str, tmp_path: Path) -> None:
    make_secret(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tries = {
            "files": f"result = open({str(tmp_path / 'secret')!r}).read()",
            "signals": f"import os; result = os.kill({os.getpid()}, 0)",
            "networks": "import socket; result = socket.create_connection("
            f"('127.0.0.1', {listener.getsockname()[1]}), 1)",
        }
        async with a_template(layers=WALLS[wall], level=Level.NONE) as template:
            for kind, code in tries.items():
                # that calls are filtered says nothing of files
                if (wall, kind) != ("filter", "files"):
                    async with a_guest(template) as guest:
                        assert re.match(REFUSED, await guest.ask(code)), kind


async def test_a_template_with_a_thread_does_not_serve() -> None:
    file = Path(TINY.files[0]).with_name("threaded_guest.py")
    guest = GuestCode(module="threaded_guest", files=(file,))

    with pytest.raises(TemplateFailed, match="2 threads"):
        async with a_template(guest):
            raise AssertionError


async def test_the_heap_of_a_template_is_frozen() -> None:
    async with a_template() as template, a_guest(template) as guest:
        assert await guest.value("import gc; result = gc.get_freeze_count()") > 10_000


async def test_dependencies_are_importable_and_the_template_has_not_imported_them(
    tmp_path: Path,
) -> None:
    make_dependency(tmp_path)
    async with a_template(dependencies=str(tmp_path)) as template, a_guest(template) as guest:
        known = "import sys; result = 'acme_dependency' in sys.modules, sys.path[-1]"
        used = (
            "import acme_dependency as d, os; result = (d.pid, d.uid) == (os.getpid(), os.getuid())"
        )

        assert await guest.value(known) == (False, "/dependencies")
        assert await guest.value(used) is True
        assert (await guest.ask("open('/dependencies/x', 'w')")).startswith("OSError: [Errno 30]")


async def test_isolates_of_one_template_share_a_hash_seed_and_others_do_not() -> None:
    seen = "result = hash('abc')"
    async with a_template() as template, a_template() as another:
        async with a_guest(template) as one, a_guest(template) as two, a_guest(another) as three:
            hashes = [await guest.value(seen) for guest in (one, two, three)]

    assert hashes[0] == hashes[1] != hashes[2]


async def test_memory_and_files_are_bounded_as_asked() -> None:
    limits = IsolateRlimits(memory_bytes=48 << 20, private_bytes=1 << 20, num_files=20)
    async with a_template() as template, a_guest(template, limits) as guest:
        assert (await guest.ask("x = bytearray(48 << 20)")).startswith("MemoryError")
        assert await guest.ask("result = len(bytearray(20 << 20))") == f"GOT {20 << 20}"
        written = await guest.ask("open('/tmp/x', 'wb').write(bytes(2 << 20))")
        assert written.startswith("OSError")
        opened = "import os\nkept = []\nwhile True: kept.append(os.open('/dev/null', 0))"
        assert await guest.ask(opened) == "OSError: [Errno 24] Too many open files: '/dev/null'"


async def test_groups_hold_what_limits_of_a_process_do_not() -> None:
    # pages that were written and then made read-only are no data to RLIMIT_DATA
    hog = (
        "import ctypes, mmap\nkept = []\n"
        "while len(kept) < 80:\n"
        "    kept.append(mmap.mmap(-1, 4 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))\n"
        "    kept[-1].write(b'x' * (4 << 20))\n"
        "    at = ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))\n"
        "    ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), ctypes.c_size_t(4 << 20), 1)\n"
    )
    limits = IsolateRlimits(memory_bytes=64 << 20)
    together = GroupLimits(memory_bytes=1 << 30, num_tasks=500, cpus=1.5)
    async with a_template(limits=together) as template:
        async with a_guest(template, limits) as hostile, a_guest(template, limits) as neighbor:
            assert await hostile.ask_or_none(hog) is None
            assert await hostile.spawned.wait() == KILLED
            assert await neighbor.ask("result = 1") == "GOT 1"
            groups = (Path("/proc") / str(neighbor.spawned.pid) / "cgroup").read_text()
            assert "tenantry-" in groups
    assert not [name for name in groups_below("/sys/fs/cgroup") if name in groups]
