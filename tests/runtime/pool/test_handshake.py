"""Who may talk to whom: versions, incarnations, and peers that speak another language."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import msgspec
import pytest

from support.fake_loop import FakeLoopConfig
from support.fake_node import ENDLESS, PATIENCE_S, a_node, a_submit
from support.raw_edge import RawEdge, a_raw_edge
from tenantry_runtime.errors import IncompatibleNode
from tenantry_runtime.pool.client import connect
from tenantry_runtime.pool.messages import PROTOCOL_VERSION, SERVICE, Hello, NodeDescription, Step
from tenantry_runtime.pool.node import UNUSABLE
from tenantry_runtime.pool.service import VersionMismatch, agreed_version
from tenantry_runtime.pool.wire import encode


@asynccontextmanager
async def a_server_that_answers_hello(folder: Path, answer: bytes) -> AsyncIterator[str]:
    async def hello(_request: bytes, _context: Any) -> bytes:
        return answer

    address = f"unix:{folder / 'other.sock'}"
    server = grpc.aio.server()
    methods = {"Hello": grpc.unary_unary_rpc_method_handler(hello)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("newest", "oldest", "agreed"),
    [(1, 1, 1), (2, 1, 2), (4, 1, 2)],
    ids=["older edge", "same", "newer edge that still speaks ours"],
)
def test_the_newest_common_version_is_chosen(newest: int, oldest: int, agreed: int) -> None:
    assert agreed_version(Hello(edge="e", version=newest, oldest_version=oldest)) == agreed


def test_no_common_version_names_both_ranges() -> None:
    with pytest.raises(VersionMismatch, match=r"1 to 2, edge 'e' speaks 3 to 4"):
        agreed_version(Hello(edge="e", version=4, oldest_version=3))


@pytest.mark.asyncio
async def test_an_edge_that_waits_for_a_node_which_cannot_start_is_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = FakeLoopConfig(load_s=1.0, problem="no such model")
    async with a_node(tmp_path, config) as node:
        with anyio.fail_after(PATIENCE_S), pytest.raises(grpc.aio.AioRpcError) as caught:
            # shakes hands before anything else
            async with a_raw_edge(node.address):
                pass
        with anyio.fail_after(PATIENCE_S):
            assert await node.process.wait() == UNUSABLE

    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "ends before it was ready" in str(caught.value.details())
    # what nobody can do anything about is not in the node's log
    assert capfd.readouterr().err.splitlines()[-1].endswith("no such model")


@pytest.mark.asyncio
async def test_a_node_refuses_an_edge_that_is_too_new_and_goes_on(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, a_raw_edge(node.address) as edge:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await edge.hello(Hello(edge="new", version=9, oldest_version=8))

        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "'new' speaks 8 to 9" in caught.value.details()
        assert (await edge.hello(Hello(edge="ours"))).version == PROTOCOL_VERSION


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (encode(NodeDescription(version=9, incarnation=1, members=())), "version 9"),
        (b"not MessagePack", "unreadable"),
        (msgspec.msgpack.encode({"version": "one"}), "unreadable"),
    ],
    ids=["version", "garbage", "mistyped"],
)
async def test_a_node_that_answers_in_another_version_is_incompatible(
    tmp_path: Path, answer: bytes, problem: str
) -> None:
    async with (
        a_server_that_answers_hello(tmp_path, answer) as address,
        connect(address) as client,
    ):
        with anyio.fail_after(PATIENCE_S), pytest.raises(IncompatibleNode, match=problem) as caught:
            await client.ready()

        assert caught.value.address == address
        assert not client.is_healthy


@pytest.mark.asyncio
async def test_fields_of_a_newer_edge_are_ignored(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, a_raw_edge(node.address) as edge:
        hello = {"edge": "e", "version": PROTOCOL_VERSION, "colour": "blue"}

        assert (await edge.hello(msgspec.msgpack.encode(hello))).version == PROTOCOL_VERSION


@pytest.mark.asyncio
async def test_work_for_an_earlier_life_of_the_node_is_refused(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, a_raw_edge(node.address) as edge:
        description = await edge.hello(Hello(edge="raw"))
        edge.open(description.incarnation - 1)

        code, details = await edge.status()
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert str(description.incarnation) in details


async def _reads_its_own_tokens(edge: RawEdge) -> None:
    await edge.send(a_submit("good"))
    message = await edge.read()
    assert isinstance(message, Step)
    assert message.sequences[0].token_ids[0] == 101


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "garbage",
    [b"\xc1", msgspec.msgpack.encode({"type": "submit"})],
    ids=["no MessagePack", "no id"],
)
async def test_an_edge_that_sends_garbage_loses_its_stream_and_no_other_does(
    tmp_path: Path, garbage: bytes
) -> None:
    async with (
        a_node(tmp_path) as node,
        a_raw_edge(node.address) as bad,
        a_raw_edge(node.address) as good,
    ):
        await bad.send(garbage)

        code, _ = await bad.status()
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        await _reads_its_own_tokens(good)


@pytest.mark.asyncio
async def test_an_id_that_is_running_ends_the_stream(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, a_raw_edge(node.address) as edge:
        await edge.send(a_submit("same", max_tokens=ENDLESS))
        await edge.send(a_submit("same"))

        assert await edge.status() == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "sequence 'same' is running already",
        )
