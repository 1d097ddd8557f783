"""`workerctl node`: what it refuses, and that it serves, drains and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import anyio
import msgspec
import pytest
from click.testing import Result

from support.command_line import a_workerctl_process, workerctl
from support.fake_node import PATIENCE_S, a_node
from support.processes import descendants_of
from tenantry_runtime.engine.config import NodeConfig
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.client import connect
from tenantry_runtime.pool.foreground import NodeOptions, node_config

KIMI = "@cf/moonshotai/kimi-k2.6"
GLM = "@cf/zai-org/glm-5.2"


def node(*arguments: str) -> Result:
    return workerctl("node", *arguments, env={})


def engine_of(*members: str, **fields: object) -> NodeConfig:
    options = NodeOptions(members=members, address="unix:/tmp/n.sock", **fields)  # type: ignore[arg-type]  # as a command line has them
    return msgspec.json.decode(node_config(options).engine, type=NodeConfig)


def test_members_are_found_by_alias_and_gathered_by_model() -> None:
    engine = engine_of("kimi-k2.6:prefill", f"{GLM}:decode", f"{KIMI}:decode")

    assert [(source.id, source.phases) for source in engine.models] == [
        (KIMI, ("prefill", "decode")),
        (GLM, ("decode",)),
    ]
    assert all(Path(source.directory).is_dir() for source in engine.models)


def test_the_prefill_cache_is_that_of_models_with_a_prefill_member() -> None:
    engine = engine_of("kimi-k2.6:prefill", "glm-5.2:decode", cache="fp8", prefill_cache="bf16")

    kimi, glm = engine.models
    assert (kimi.cache, kimi.prefill_cache) == ("fp8", "bf16")
    assert (glm.cache, glm.prefill_cache) == ("fp8", None)


def test_a_node_computes_where_it_is_told_to() -> None:
    engine = engine_of("kimi-k2.6:decode", device="cuda:1", memory_fraction=0.5)
    assert (engine.device, engine.memory_fraction) == ("cuda:1", 0.5)
    with pytest.raises(ConfigurationError, match="device must be cpu, cuda or cuda:N, not 'gpu'"):
        engine_of("kimi-k2.6:decode", device="gpu")


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        (["kimi-k2.6"], "MODEL:prefill or MODEL:decode"),
        (["kimi-k2.6:both"], "MODEL:prefill or MODEL:decode"),
        (["kimi-k2.7:decode"], "kimi-k2.6"),
        (["kimi-k2.6:decode", f"{KIMI}:decode"], "twice"),
    ],
    ids=["no phase", "no such phase", "no such model", "twice by two names"],
)
def test_a_member_that_is_none_is_named(members: list[str], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        engine_of(*members)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--member"),
        (["--member", "kimi-k2.6:decode"], "--address"),
        (
            ["--member", "kimi-k2.6:decode", "--address", "a:1", "--tls-ca", "pyproject.toml"],
            "or none",
        ),
    ],
    ids=["nothing", "no address", "half of the certificates"],
)
def test_a_command_line_that_lacks_something_is_refused(arguments: list[str], problem: str) -> None:
    result = node(*arguments)

    assert result.exit_code == 2
    assert problem in result.stderr


def test_an_address_for_other_machines_needs_certificates() -> None:
    result = node("--member", "kimi-k2.6:decode", "--address", "0.0.0.0:7000")

    assert result.exit_code == 1
    assert "workerctl node certificate" in result.stderr
    assert result.stderr.count("\n") == 1


def test_certificates_are_made_where_they_are_said_to_be(tmp_path: Path) -> None:
    result = node("certificate", "gpu-1", "--ca", str(tmp_path / "ca"), "--host", "192.0.2.4")

    assert result.exit_code == 0
    files = [Path(line) for line in result.stdout.splitlines()]
    assert [file.name for file in files] == ["gpu-1.crt", "gpu-1.key", "ca.crt"]
    assert all(file.exists() for file in files)
    again = node("certificate", "gpu-1", "--ca", str(tmp_path / "ca"))
    assert again.exit_code == 1
    assert "exists" in again.stderr


@pytest.mark.asyncio
async def test_a_node_that_is_told_to_drain_ends(tmp_path: Path) -> None:
    async with a_node(tmp_path) as running:
        async with connect(running.address) as client:
            await client.ready()
        # the command has an event loop of its own
        result = await anyio.to_thread.run_sync(lambda: node("drain", running.address))
        with anyio.fail_after(PATIENCE_S):
            exit_code = await running.process.wait()

    assert result.exit_code == 0
    assert result.stdout == f"{running.address} is draining\n"
    assert exit_code == 0


def test_a_node_that_does_not_answer_cannot_be_told_to_drain(tmp_path: Path) -> None:
    result = node("drain", f"unix:{tmp_path / 'nobody.sock'}")

    assert result.exit_code == 1
    assert "nobody.sock does not answer" in result.stderr


def test_a_node_on_another_machine_is_not_told_to_drain_without_certificates() -> None:
    result = node("drain", "192.0.2.4:7000")

    assert result.exit_code == 1
    assert "certificates" in result.stderr


def lines_until(stream: IO[bytes], word: str) -> Iterator[str]:
    for line in stream:
        yield line.decode()
        if word in line.decode():
            return


@pytest.mark.slow
def test_a_node_says_when_it_serves_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    socket = tmp_path / "node.sock"
    arguments = ("--member", "kimi-k2.6:prefill", "--address", f"unix:{socket}", "--cache", "fp8")
    with a_workerctl_process("node", *arguments, env={}) as process:
        assert process.stdout is not None
        said = "".join(lines_until(process.stdout, "Ctrl-C"))
        assert f"{KIMI} prefill: weights" in said
        assert "cache fp8" in said
        pids = descendants_of(process.pid)
        assert pids

        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().decode()

    assert "Draining" in rest
    assert rest.endswith("Stopped\n")
    assert process.returncode == 0
    assert not socket.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
