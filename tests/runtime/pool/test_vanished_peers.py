"""Each process of a node is killed, stopped or left unread in mid-stream; the others notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from support.fake_loop import CRASH, HANG, FakeLoopConfig
from support.fake_node import (
    ENDLESS,
    PATIENCE_S,
    a_node,
    a_submit,
    environment,
    start_process,
    until_running,
)
from support.processes import wait_until_gone
from support.raw_edge import a_raw_edge
from tenantry_runtime.errors import GenerationFailed, NodeUnavailable, TenantryError
from tenantry_runtime.pool.client import NodeClient, connect
from tenantry_runtime.pool.liveness import Liveness
from tenantry_runtime.pool.messages import (
    Failed,
    NodeDescription,
    NodeStatistics,
    PrefixChanges,
    Step,
    Submit,
)
from tenantry_runtime.pool.node import LOOP_DIED, STOPPED, UNUSABLE

pytestmark = pytest.mark.cluster


async def read_until_error(client: NodeClient, first_token: anyio.Event) -> TenantryError:
    """Generate without end; return what ended it."""
    received: list[int] = []
    try:
        async with client.generate(a_submit(prompt=[0], max_tokens=ENDLESS)) as sequence:
            async for tokens in sequence:
                received += tokens.token_ids
                first_token.set()
    except TenantryError as error:
        assert received == list(range(1, len(received) + 1))
        return error
    raise AssertionError("an endless sequence has ended")


class Losses:
    """A `NodeObserver` that notes how nodes end."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, list[str]]] = []

    def reported(self, node: str, statistics: NodeStatistics) -> None: ...

    def changed(self, node: str, description: NodeDescription, changes: PrefixChanges) -> None: ...

    def lost(self, node: str, reason: str, unfinished: Sequence[Submit]) -> None:
        self.heard.append((node, reason, [each.request_id for each in unfinished]))

    def left(self, node: str, cut_off: Sequence[Submit]) -> None:
        self.lost(node, "in order", cut_off)


@pytest.mark.asyncio
async def test_when_the_loop_is_killed_its_sequences_fail_and_the_node_exits(
    tmp_path: Path,
) -> None:
    losses = Losses()
    async with a_node(tmp_path) as node, connect(node.address, observer=losses) as client:
        await client.ready()
        async with client.generate(a_submit("cut off", max_tokens=ENDLESS)) as sequence:
            await anext(sequence)
            os.kill(node.loop_pid, signal.SIGKILL)

            with anyio.fail_after(PATIENCE_S), pytest.raises(GenerationFailed, match="SIGKILL"):
                async for _ in sequence:
                    pass

        with anyio.fail_after(PATIENCE_S):
            assert await node.process.wait() == LOOP_DIED
            while client.is_healthy:
                await anyio.lowlevel.checkpoint()
    # by its observer too, who is told what was running and why it is not
    reason = "UNAVAILABLE: the step loop was ended by SIGKILL"
    assert losses.heard == [(node.address, reason, ["cut off"])]


@pytest.mark.asyncio
async def test_a_request_that_kills_the_loop_fails_all_that_ran_with_it(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as client:
        await client.ready()
        has_begun = anyio.Event()
        errors: list[TenantryError] = []

        async def bystander() -> None:
            errors.append(await read_until_error(client, has_begun))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bystander)
            await has_begun.wait()
            with anyio.fail_after(PATIENCE_S), pytest.raises(GenerationFailed):
                async with client.generate(a_submit("fatal", prompt=[CRASH])) as sequence:
                    await anext(sequence)

        assert isinstance(errors[0], GenerationFailed)


@pytest.mark.asyncio
async def test_when_the_front_is_killed_the_loop_dies_and_the_client_finds_the_next_node(
    tmp_path: Path,
) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as client:
        first_life = await client.ready()
        loop_pid = node.loop_pid
        async with client.generate(a_submit(max_tokens=ENDLESS)) as sequence:
            await anext(sequence)
            node.process.kill()

            with anyio.fail_after(PATIENCE_S), pytest.raises(NodeUnavailable):
                async for _ in sequence:
                    pass
        await wait_until_gone(loop_pid)
        assert not client.is_healthy

        # its socket file is still there
        async with a_node(tmp_path):
            with anyio.fail_after(PATIENCE_S):
                second_life = await client.ready()
            assert second_life.incarnation > first_life.incarnation
            async with client.generate(a_submit(max_tokens=1)) as sequence:
                assert (await anext(sequence)).token_ids == (101,)


@pytest.mark.asyncio
async def test_when_the_front_is_killed_even_a_loop_that_hangs_dies(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as client:
        await client.ready()
        loop_pid = node.loop_pid
        async with client.generate(a_submit("hang", prompt=[HANG])) as sequence:
            await anext(sequence)
            node.process.kill()

        await wait_until_gone(loop_pid)


@pytest.mark.asyncio
async def test_when_an_edge_is_killed_its_sequences_stop(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as observer:
        await observer.ready()
        edge = await anyio.open_process(
            [sys.executable, "-m", "support.fake_edge", node.address],
            env=environment(),
            stderr=subprocess.DEVNULL,
        )
        async with edge:
            assert edge.stdout is not None
            await edge.stdout.receive()
            await until_running(observer, 1)
            edge.kill()

        await until_running(observer, 0)


@pytest.mark.asyncio
async def test_an_edge_that_does_not_read_loses_its_sequences_and_no_other_edge_does(
    tmp_path: Path,
) -> None:
    async with (
        a_node(tmp_path, FakeLoopConfig(tokens_per_step=64)) as node,
        connect(node.address) as other,
        a_raw_edge(node.address) as stuck,
    ):
        await other.ready()
        await stuck.send(a_submit("unread", prompt=[0], max_tokens=ENDLESS))
        first = await stuck.read()
        await until_running(other, 0)
        async with other.generate(a_submit(max_tokens=1)) as sequence:
            assert (await anext(sequence)).token_ids == (101,)

        # what fits the bounds is still there, in order, and then the reason
        assert isinstance(first, Step)
        received = list(first.sequences[0].token_ids)
        while isinstance(message := await stuck.read(), Step):
            received += message.sequences[0].token_ids
        assert received == list(range(1, len(received) + 1))
        assert isinstance(message, Failed)
        assert (message.request_id, message.reason) == ("unread", "internal")
        assert "unread" in message.message

        # a second chance
        await stuck.send(a_submit("again", max_tokens=1))
        again = await stuck.read()
        assert isinstance(again, Step)
        assert again.sequences[0].token_ids == (101,)


@pytest.mark.asyncio
async def test_a_stopped_front_is_taken_for_lost(tmp_path: Path) -> None:
    # the shortest intervals that the node does not take for an attack
    liveness = Liveness(keepalive_interval_s=1.0, keepalive_timeout_s=0.3)
    async with a_node(tmp_path) as node, connect(node.address, liveness=liveness) as client:
        await client.ready()
        has_begun = anyio.Event()
        errors: list[TenantryError] = []

        async def generate() -> None:
            # without its own timeout for pings, gRPC waits a minute
            with anyio.fail_after(PATIENCE_S):
                errors.append(await read_until_error(client, has_begun))

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(generate)
                await has_begun.wait()
                node.process.send_signal(signal.SIGSTOP)
            assert isinstance(errors[0], NodeUnavailable)
            assert not client.is_healthy
        finally:
            node.process.send_signal(signal.SIGCONT)


@pytest.mark.asyncio
async def test_a_loop_that_hangs_is_unhealthy_and_does_not_outlive_its_node(
    tmp_path: Path,
) -> None:
    liveness = Liveness(ask_every_s=0.1, stale_after_s=1.5)
    async with a_node(tmp_path) as node, connect(node.address, liveness=liveness) as client:
        await client.ready()
        loop_pid = node.loop_pid
        async with client.generate(a_submit("hang", prompt=[HANG])) as sequence:
            await anext(sequence)
            with anyio.fail_after(PATIENCE_S):
                while client.is_healthy:
                    await anyio.lowlevel.checkpoint()
            with pytest.raises(NodeUnavailable):
                async with client.generate(a_submit("refused")):
                    pass

            node.process.terminate()
            with anyio.fail_after(PATIENCE_S):
                with pytest.raises(GenerationFailed, match="stopping"):
                    await anext(sequence)
                assert await node.process.wait() == STOPPED
        await wait_until_gone(loop_pid)


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_node_that_is_told_to_stop_fails_what_runs_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with a_node(tmp_path) as node, connect(node.address) as client:
        await client.ready()
        loop_pid = node.loop_pid
        async with client.generate(a_submit(max_tokens=ENDLESS)) as sequence:
            await anext(sequence)
            node.process.send_signal(number)

            with anyio.fail_after(PATIENCE_S), pytest.raises(GenerationFailed, match="stopping"):
                async for _ in sequence:
                    pass
            with anyio.fail_after(PATIENCE_S):
                assert await node.process.wait() == STOPPED
        await wait_until_gone(loop_pid)
        assert not (tmp_path / "node.sock").exists()


@pytest.mark.asyncio
async def test_a_node_that_cannot_be_built_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = FakeLoopConfig(problem="model.safetensors: tensor lm_head.weight: missing")
    async with a_node(tmp_path, config) as node:
        with anyio.fail_after(PATIENCE_S):
            assert await node.process.wait() == UNUSABLE

    assert "model.safetensors: tensor lm_head.weight: missing" in capfd.readouterr().err


@pytest.mark.asyncio
async def test_a_node_that_fails_to_be_built_says_last_what_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with a_node(tmp_path, FakeLoopConfig(fault="an error of the driver")) as node:
        with anyio.fail_after(PATIENCE_S):
            assert await node.process.wait() == UNUSABLE

    *before, last = capfd.readouterr().err.splitlines()
    assert last.endswith("the step loop could not be made: RuntimeError: an error of the driver")
    assert any("Traceback" in line for line in before)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (None, "cannot read"),
        ("{", "node.json"),
        ('{"address": "unix:/tmp/a", "engine": {}, "adress": 1}', "adress"),
        ('{"address": "unix:/no/such/folder/node.sock", "engine": {}}', "cannot listen"),
    ],
    ids=["missing", "malformed", "misspelled", "no folder"],
)
async def test_a_bad_configuration_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], config: str | None, problem: str
) -> None:
    file = tmp_path / "node.json"
    if config is not None:
        file.write_text(config)
    async with start_process("support.fake_node", str(file)) as process:
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == UNUSABLE

    assert problem in capfd.readouterr().err
