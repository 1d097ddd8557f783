"""However `workerctl dev` ends, it ends whole, and says why."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from support.dev_server import LAST_LINE, a_dev_server
from support.processes import command_of, wait_until_gone

pytestmark = pytest.mark.cluster

# node's front, its step loop, edge
NUM_PROCESSES = 3


@pytest.mark.asyncio
async def test_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    with a_dev_server(tmp_path) as server:
        server.wait_for_line(LAST_LINE)
        pids = server.descendants(NUM_PROCESSES)
        server.interrupt()

        assert server.wait_for_end() == 0
        assert server.lines[-1] == "Stopping"
    for pid in pids:
        await wait_until_gone(pid)
    assert not (server.state_dir / "run" / "node.sock").exists()
    for name in ("node", "edge"):
        assert "Traceback" not in (server.state_dir / "logs" / f"{name}.log").read_text()


def test_a_demo_shows_an_answer_of_each_model(tmp_path: Path) -> None:
    with a_dev_server(tmp_path, demo=True) as server:
        for name in ("kimi-k2.6", "glm-5.2"):
            server.wait_for_line(f"{name}, 'What is 17 + 25?': ")
            answer = server.lines[-1].partition("': ")[2]
            usage = r"\(\d+ tokens in, \d+ out, thinking included\)"
            assert re.fullmatch(rf"17 \+ 25 = {17 + 25}\s+{usage}\s*", answer), answer

        server.process.terminate()
        assert server.wait_for_end() == 0


@pytest.mark.asyncio
async def test_ctrl_c_during_the_start_ends_every_process(tmp_path: Path) -> None:
    with a_dev_server(tmp_path) as server:
        pids = server.descendants(NUM_PROCESSES)
        server.interrupt()

        assert server.wait_for_end() == 0
    for pid in pids:
        await wait_until_gone(pid)


@pytest.mark.asyncio
async def test_no_process_survives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with a_dev_server(tmp_path) as server:
        pids = server.descendants(NUM_PROCESSES)
        server.process.kill()

        assert server.wait_for_end() == -signal.SIGKILL
    for pid in pids:
        await wait_until_gone(pid)


@pytest.mark.asyncio
async def test_a_step_loop_that_dies_ends_everything_with_its_last_words(tmp_path: Path) -> None:
    with a_dev_server(tmp_path) as server:
        server.wait_for_line(LAST_LINE)
        pids = server.descendants(NUM_PROCESSES)
        (loop,) = (pid for pid in pids if "loop_process" in command_of(pid))
        os.kill(loop, signal.SIGKILL)

        assert server.wait_for_end() == 1
    said = "\n".join(server.lines)
    assert "Error: the node exited with code 3" in said
    assert str(server.state_dir / "logs" / "node.log") in said
    assert "the step loop was ended by SIGKILL" in said
    for pid in pids:
        await wait_until_gone(pid)
