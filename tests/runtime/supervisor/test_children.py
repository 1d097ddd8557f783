"""Child processes: their output is kept, and none outlives its supervisor."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from support.fake_node import PATIENCE_S, environment
from support.processes import wait_until_gone
from tenantry_runtime.supervisor.children import TAIL_LINES, start_child

# a module of the standard library that prints and ends
PRINTS = "this"
SAYS = "The Zen of Python, by Tim Peters"
WAITS = "support.stubborn"


@pytest.mark.asyncio
async def test_a_childs_output_goes_to_a_log_of_its_owner(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    async with start_child("child", PRINTS, log=log) as child:
        assert await child.process.wait() == 0

    assert SAYS in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert len(child.log_tail()) == TAIL_LINES
    assert child.log_tail()[-1].startswith("Namespaces are one honking great idea")


@pytest.mark.asyncio
async def test_the_log_of_the_start_before_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    log.write_text("from before")
    async with start_child("child", PRINTS, log=log) as child:
        await child.process.wait()

    assert (tmp_path / "child.log.previous").read_text() == "from before"
    assert "from before" not in log.read_text()


@pytest.mark.asyncio
async def test_a_child_that_ignores_sigterm_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    log = tmp_path / "child.log"
    with anyio.fail_after(PATIENCE_S):
        async with start_child("child", WAITS, log=log):
            while len(pids := log.read_text().split()) < 2:
                await anyio.lowlevel.checkpoint()

    for pid in pids:
        await wait_until_gone(int(pid))


@pytest.mark.asyncio
async def test_a_child_dies_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    supervisor = await anyio.open_process(
        [sys.executable, "-m", "support.short_lived_parent", str(log)],
        env=environment(),
        stderr=None,
    )
    async with supervisor:
        assert supervisor.stdout is not None
        child_pid = int(await supervisor.stdout.receive())
        # the child must have come so far as to ask for its end
        with anyio.fail_after(PATIENCE_S):
            while not log.read_text():
                await anyio.lowlevel.checkpoint()
        supervisor.kill()

    await wait_until_gone(child_pid)
