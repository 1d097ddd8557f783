"""`workerctl serve` with real processes: real fronts and edge, and step loops that compute nothing."""

from __future__ import annotations

import os
import signal
import socket
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.dev_server import environment
from support.fake_node import TESTS
from support.http_peer import an_unused_port
from support.processes import command_of, wait_until_gone
from support.supervised import Supervised, a_process
from tenantry.credentials import load_credentials
from tenantry_runtime.pool.client import drain_node

SERVE = """
import sys
from pathlib import Path
from tenantry_runtime.supervisor import Modules, serve
file, grant, node, *only = sys.argv[1:]
modules = Modules(node=node)
sys.exit(serve(Path(file), only=only, grant=grant or None, modules=modules))
"""

LAST_LINE = "Ctrl-C ends everything here."

# fronts and step loops of two nodes, edge
NUM_PROCESSES = 5


def a_cluster_file(folder: Path, *, drain_s: float = 0.0) -> Path:
    path = folder / "cluster.toml"
    path.write_text(f"""
state_dir = "state"
[edge]
port = {an_unused_port()}
grace_s = 1.0
[[nodes]]
name = "prefill"
address = "unix:run/prefill.sock"
members = ["kimi-k2.6:prefill", "glm-5.2:prefill"]
drain_s = {drain_s}
[[nodes]]
name = "decode"
address = "127.0.0.1:{an_unused_port()}"
members = ["kimi-k2.6:decode", "glm-5.2:decode"]
cache = "fp8"
drain_s = {drain_s}
""")
    return path


@contextmanager
def serving(
    file: Path, *only: str, grant: str = "", node: str = "support.configured_node"
) -> Iterator[Supervised]:
    env = environment(file.parent) | {"PYTHONPATH": str(TESTS)}
    with a_process(SERVE, str(file), grant, node, *only, env=env) as supervised:
        yield supervised


@pytest.mark.asyncio
async def test_all_local_parts_are_started_and_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    file = a_cluster_file(tmp_path)
    with serving(file) as served:
        served.wait_for_line(LAST_LINE)
        pids = served.descendants(NUM_PROCESSES)
        served.interrupt()
        assert served.wait_for_end() == 0

    assert served.lines[0] == "Starting edge, prefill and decode"
    assert served.lines[1] == f"State and logs: {tmp_path / 'state'}"
    said = [" ".join(line.split()) for line in served.lines]
    socket = f"unix:{tmp_path}/run/prefill.sock"
    assert f"prefill {socket} prefill bf16: kimi-k2.6, glm-5.2" in said
    assert sum(line.startswith(("prefill is ready", "decode is ready")) for line in said) == 2
    assert any(line.startswith("edge is ready") for line in said)
    assert served.lines[-1] == "Stopping"
    for pid in pids:
        await wait_until_gone(pid)
    for name in ("edge", "prefill", "decode"):
        assert "Traceback" not in (tmp_path / "state" / "logs" / f"{name}.log").read_text()


@pytest.mark.asyncio
async def test_ctrl_c_during_the_start_ends_every_process(tmp_path: Path) -> None:
    with serving(a_cluster_file(tmp_path)) as served:
        pids = served.descendants(NUM_PROCESSES)
        served.interrupt()
        assert served.wait_for_end() == 0
    for pid in pids:
        await wait_until_gone(pid)


@pytest.mark.asyncio
async def test_no_process_survives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with serving(a_cluster_file(tmp_path)) as served:
        pids = served.descendants(NUM_PROCESSES)
        served.process.kill()
        assert served.wait_for_end() == -signal.SIGKILL
    for pid in pids:
        await wait_until_gone(pid)


@pytest.mark.asyncio
async def test_parts_of_one_file_are_started_apart_and_find_each_other(tmp_path: Path) -> None:
    file = a_cluster_file(tmp_path)
    with serving(file, "decode") as decode:
        decode.wait_for_line(LAST_LINE)
        assert decode.lines[0] == "Starting decode"
        assert [line.split()[0] for line in decode.lines if "elsewhere" in line] == [
            "edge",
            "prefill",
        ]
        with serving(file, "edge", "prefill", grant="acme") as rest:
            rest.wait_for_line("edge is ready")
            credentials = load_credentials(tmp_path / "config" / "credentials.json")
            assert credentials is not None
            assert credentials.account_id == "acme"

            with serving(file, "prefill") as again:
                assert again.wait_for_end() == 1
            assert f"process {rest.process.pid} uses the state directory" in again.lines[-1]
            assert "for its prefill" in again.lines[-1]
            assert "state_dir" in again.lines[-1]

            rest.interrupt()
            assert rest.wait_for_end() == 0
        decode.interrupt()
        assert decode.wait_for_end() == 0


@pytest.mark.asyncio
async def test_a_part_that_dies_ends_everything_with_its_last_words(tmp_path: Path) -> None:
    with serving(a_cluster_file(tmp_path)) as served:
        served.wait_for_line(LAST_LINE)
        pids = served.descendants(NUM_PROCESSES)
        loop = next(pid for pid in pids if "loop_process" in command_of(pid))
        os.kill(loop, signal.SIGKILL)
        assert served.wait_for_end() == 1
    said = "\n".join(served.lines)
    assert "exited with code 3; its last lines" in said
    assert "the step loop was ended by SIGKILL" in said
    for pid in pids:
        await wait_until_gone(pid)


def test_a_port_in_use_is_refused_with_the_key_that_helps(tmp_path: Path) -> None:
    file = a_cluster_file(tmp_path)
    port = tomllib.loads(file.read_text())["edge"]["port"]
    with socket.create_server(("127.0.0.1", port)), serving(file, "edge") as served:
        assert served.wait_for_end() == 1
    assert served.lines == [f"Error: port {port} is in use; choose another with edge.port"]


@pytest.mark.asyncio
async def test_a_second_ctrl_c_ends_a_part_that_takes_its_time(tmp_path: Path) -> None:
    with serving(
        a_cluster_file(tmp_path, drain_s=100.0), "prefill", node="support.stubborn"
    ) as served:
        served.wait_for_line("prefill  ")
        log = tmp_path / "state" / "logs" / "prefill.log"
        while not (log.exists() and log.read_text()):
            assert served.process.poll() is None
        served.interrupt()
        served.wait_for_line("Running answers have up to 101 s; Ctrl-C again ends them now")
        served.interrupt()
        assert served.wait_for_end() == 0
    await wait_until_gone(int(log.read_text()))


@pytest.mark.parametrize(
    ("only", "grant", "problem"),
    [
        (["decoder"], "", "{file} has no part 'decoder'; did you mean decode?"),
        (["decode"], "acme", "--grant is for where the edge runs, and it does not run here"),
    ],
)
def test_what_cannot_be_started_is_an_error(
    tmp_path: Path, only: list[str], grant: str, problem: str
) -> None:
    file = a_cluster_file(tmp_path)
    with serving(file, *only, grant=grant) as served:
        assert served.wait_for_end() == 1
    assert served.lines == [f"Error: {problem.format(file=file)}"]
    assert not (tmp_path / "state").exists()


@pytest.mark.asyncio
async def test_a_node_that_is_drained_ends_alone(tmp_path: Path) -> None:
    file = a_cluster_file(tmp_path)
    port = tomllib.loads(file.read_text())["edge"]["port"]
    with serving(file) as served:
        served.wait_for_line(LAST_LINE)
        await drain_node(f"unix:{tmp_path}/run/prefill.sock", None)
        served.wait_for_line("prefill has ended, as it was asked to")
        with socket.create_connection(("127.0.0.1", port)):
            pass
        served.interrupt()
        assert served.wait_for_end() == 0
