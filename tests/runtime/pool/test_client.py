"""The edge's client against a real node process with a counting step loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from support.fake_loop import CONTEXT_TOKENS, FAIL, MODEL, FakeLoopConfig
from support.fake_node import ENDLESS, PATIENCE_S, a_node, a_submit, until_running
from tenantry_runtime.core import FinishReason
from tenantry_runtime.errors import (
    CapacityExceeded,
    ContextExceeded,
    GenerationFailed,
    NodeUnavailable,
)
from tenantry_runtime.pool.client import NodeClient, connect
from tenantry_runtime.pool.connection import MAX_UNREAD_TOKENS
from tenantry_runtime.pool.dispatch import MAX_PENDING_TOKENS
from tenantry_runtime.pool.interface import TokenSource
from tenantry_runtime.pool.messages import Submit, Timings


@asynccontextmanager
async def a_client(folder: Path, config: FakeLoopConfig | None = None) -> AsyncIterator[NodeClient]:
    """A client and its ready node. No fixture: its task group must end in the test's own task."""
    async with a_node(folder, config) as node, connect(node.address) as client:
        await client.ready()
        yield client


async def all_tokens(client: TokenSource, submit: Submit) -> list[int]:
    token_ids: list[int] = []
    with anyio.fail_after(PATIENCE_S):
        async with client.generate(submit) as sequence:
            async for tokens in sequence:
                assert tokens.request_id == submit.request_id
                token_ids += tokens.token_ids
    return token_ids


@pytest.mark.asyncio
async def test_the_handshake_tells_what_the_node_serves(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        assert client.is_healthy
        assert [member.model for member in client.description.members] == [MODEL]


@pytest.mark.asyncio
async def test_statistics_say_which_life_of_the_node_they_are_of(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        statistics = await client.statistics()

        assert statistics.incarnation == client.description.incarnation != 0


@pytest.mark.asyncio
async def test_a_map_of_pages_comes_from_the_step_loop(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        async with client.generate(a_submit(max_tokens=ENDLESS)) as sequence:
            await anext(aiter(sequence))
            first, again = [(await client.pages()).pools for _ in range(2)]
            [pool] = first

            assert pool.states == b"\x01" + bytes(63)
            assert (pool.owners[0], pool.tenants) == (2, ("acme",))
            # asked for twice within a second, it is made once
            assert again == first


@pytest.mark.asyncio
async def test_a_sequence_ends_after_its_finish(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        async with client.generate(a_submit(prompt=[7, 100], stop_token_ids=(103,))) as sequence:
            pieces = [tokens async for tokens in sequence]

        assert [token for piece in pieces for token in piece.token_ids] == [101, 102, 103]
        assert [piece.finish for piece in pieces][-1] == FinishReason.STOP
        assert pieces[0].cached_tokens == 3
        assert pieces[-1].timings == Timings(1, 2, 3, 4, 5)


@pytest.mark.asyncio
async def test_many_sequences_share_one_stream_without_loss_or_reordering(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        received: dict[int, list[int]] = {}

        async def generate(number: int) -> None:
            submit = a_submit(str(number), prompt=[1000 * number], max_tokens=50 + number)
            received[number] = await all_tokens(client, submit)

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(generate, number)

        assert received == {
            number: [1000 * number + 1 + i for i in range(50 + number)] for number in range(40)
        }


@pytest.mark.asyncio
async def test_a_loop_that_outruns_the_front_does_not_keep_it_from_passing_tokens_on(
    tmp_path: Path,
) -> None:
    num_tokens = MAX_PENDING_TOKENS + 10_000
    async with a_client(tmp_path, FakeLoopConfig(step_s=0, tokens_per_step=4)) as client:
        submit = a_submit(prompt=[0], max_tokens=num_tokens)

        assert await all_tokens(client, submit) == list(range(1, num_tokens + 1))


@pytest.mark.asyncio
async def test_a_prompt_of_262144_ids_arrives_whole(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        prompt = [163_000] * 262_143 + [77]

        assert await all_tokens(client, a_submit(prompt=prompt, max_tokens=2)) == [78, 79]


@pytest.mark.asyncio
async def test_a_prompt_over_the_context_is_refused_with_both_numbers(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        with pytest.raises(ContextExceeded) as caught:
            await all_tokens(client, a_submit(prompt=[1, 2, 3], max_tokens=CONTEXT_TOKENS))

        assert (caught.value.num_tokens, caught.value.limit) == (CONTEXT_TOKENS + 3, CONTEXT_TOKENS)


@pytest.mark.asyncio
async def test_a_full_node_refuses_and_serves_again_later(tmp_path: Path) -> None:
    config = FakeLoopConfig(max_running=1)
    async with a_client(tmp_path, config) as client:
        async with client.generate(a_submit("running", max_tokens=ENDLESS)) as sequence:
            await anext(sequence)
            with pytest.raises(CapacityExceeded):
                await all_tokens(client, a_submit("refused"))
        await until_running(client, 0)

        assert await all_tokens(client, a_submit("later")) == [101, 102, 103, 104, 105]


@pytest.mark.asyncio
async def test_one_failed_sequence_does_not_touch_another(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        async with client.generate(a_submit("other", prompt=[0], max_tokens=ENDLESS)) as sequence:
            first = await anext(sequence)
            with pytest.raises(GenerationFailed, match="internal: asked to"):
                await all_tokens(client, a_submit("failed", prompt=[FAIL]))

            assert (await anext(sequence)).token_ids[0] == len(first.token_ids) + 1


@pytest.mark.asyncio
async def test_leaving_a_sequence_stops_it_on_the_node(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        async with client.generate(a_submit(max_tokens=ENDLESS)) as sequence:
            await anext(sequence)

        await until_running(client, 0)


@pytest.mark.asyncio
async def test_an_error_in_the_body_comes_out_as_it_is(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        with pytest.raises(KeyError, match="mine"):
            async with client.generate(a_submit(max_tokens=ENDLESS)):
                raise KeyError("mine")

        await until_running(client, 0)


@pytest.mark.asyncio
async def test_a_request_id_may_be_used_again_at_once(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:
        for start in range(0, 1000, 100):
            submit = a_submit("same", prompt=[start], max_tokens=ENDLESS)
            async with client.generate(submit) as sequence:
                assert (await anext(sequence)).token_ids[0] == start + 1


@pytest.mark.asyncio
async def test_cancelling_at_any_await_leaves_nothing_on_the_node(tmp_path: Path) -> None:
    async with a_client(tmp_path) as client:

        async def generate(submit: Submit) -> None:
            await all_tokens(client, submit)

        # the task starts, posts and receives within the first few turns of the event loop; some end
        for num_turns in range(40):
            async with anyio.create_task_group() as tasks:
                submit = a_submit(f"after-{num_turns}", max_tokens=ENDLESS)
                tasks.start_soon(generate, submit)
                for _ in range(num_turns):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()

        # behind all of them in the queues, so that none is still on its way
        assert await all_tokens(client, a_submit()) == [101, 102, 103, 104, 105]
        await until_running(client, 0)


@pytest.mark.asyncio
async def test_a_reader_that_falls_behind_loses_its_sequence_alone(tmp_path: Path) -> None:
    async with a_client(tmp_path, FakeLoopConfig(tokens_per_step=64)) as client:
        submit = a_submit("slow", prompt=[0], max_tokens=ENDLESS)
        async with client.generate(submit) as slow:
            await until_running(client, 0)
            assert await all_tokens(client, a_submit("other")) == [101, 102, 103, 104, 105]

            received: list[int] = []
            with anyio.fail_after(PATIENCE_S), pytest.raises(GenerationFailed, match="unread"):
                async for tokens in slow:
                    received += tokens.token_ids

        assert received == list(range(1, len(received) + 1))
        assert len(received) > MAX_UNREAD_TOKENS


@pytest.mark.asyncio
async def test_without_a_node_the_client_says_so_and_waits_for_one(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'node.sock'}"
    async with connect(address) as client:
        assert not client.is_healthy
        with pytest.raises(NodeUnavailable, match=MODEL):
            await all_tokens(client, a_submit())
        with pytest.raises(NodeUnavailable):
            await client.statistics()
        with pytest.raises(NodeUnavailable):
            await client.pages()

        async with a_node(tmp_path):
            with anyio.fail_after(PATIENCE_S):
                await client.ready()
            assert await all_tokens(client, a_submit(max_tokens=1)) == [101]


@pytest.mark.asyncio
async def test_a_node_that_loads_is_not_ready_before_it_has_loaded(tmp_path: Path) -> None:
    # longer than a front takes to listen
    config = FakeLoopConfig(load_s=1.0)
    async with a_node(tmp_path, config) as node, connect(node.address) as client:
        with anyio.move_on_after(0.5) as early:
            await client.ready()
        assert early.cancelled_caught and not client.is_healthy

        with anyio.fail_after(PATIENCE_S):
            await client.ready()
        assert client.is_healthy


@pytest.mark.asyncio
async def test_leaving_the_client_ends_its_sequences_here_and_on_the_node(tmp_path: Path) -> None:
    has_begun = anyio.Event()
    unavailable = anyio.Event()

    async def generate(client: NodeClient) -> None:
        with pytest.raises(NodeUnavailable):
            async with client.generate(a_submit(max_tokens=ENDLESS)) as sequence:
                async for _ in sequence:
                    has_begun.set()
        unavailable.set()

    async with (
        a_node(tmp_path) as node,
        connect(node.address) as observer,
        anyio.create_task_group() as tasks,
    ):
        await observer.ready()
        async with connect(node.address) as client:
            await client.ready()
            tasks.start_soon(generate, client)
            await has_begun.wait()

        await unavailable.wait()
        await until_running(observer, 0)
