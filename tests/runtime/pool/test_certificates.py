"""Who may connect over TCP: whoever shows a certificate of the same authority, and nobody else."""

from __future__ import annotations

import datetime
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from support.fake_node import PATIENCE_S
from support.page_loop import PageLoopConfig
from support.page_nodes import PageNode, Pair, a_page_node
from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.pool.certificates import make_certificate
from tenantry_runtime.pool.config import read_config
from tenantry_runtime.pool.grpc_options import HELLO, channel_for
from tenantry_runtime.pool.messages import Delivered, Failed, Hello, Step
from tenantry_runtime.pool.tls import TlsFiles
from tenantry_runtime.pool.wire import decode_description, encode


def free_address(host: str = "127.0.0.1") -> str:
    with socket.create_server((host, 0)) as server:
        return f"{host}:{server.getsockname()[1]}"


async def greeted(address: str, tls: TlsFiles | None) -> None:
    """Shake hands once the node is there; raise what gRPC does."""
    async with channel_for(address, tls) as channel:
        hello = channel.unary_unary(HELLO)
        answer = await hello(encode(Hello(edge="e")), timeout=PATIENCE_S, wait_for_ready=True)
        assert decode_description(answer).members


async def is_refused_without_certificate(address: str, tls: TlsFiles) -> None:
    """Call a node as somebody who trusts its authority and has nothing to show."""
    ca, _, _ = tls.read()
    credentials = grpc.ssl_channel_credentials(ca)
    async with grpc.aio.secure_channel(address, credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(HELLO)(encode(Hello(edge="e")), timeout=PATIENCE_S)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@asynccontextmanager
async def a_tls_node(
    folder: Path, name: str, config: PageLoopConfig, tls: TlsFiles
) -> AsyncIterator[PageNode]:
    async with a_page_node(folder, name, config, address=free_address(), tls=tls) as node:
        yield node


@pytest.mark.asyncio
async def test_pages_and_messages_travel_under_certificates_and_strangers_are_refused(
    tmp_path: Path,
) -> None:
    ours = tmp_path / "ours"
    hosts = ["127.0.0.1"]
    p, d = make_certificate(ours, "p", hosts), make_certificate(ours, "d", hosts)
    stranger = make_certificate(tmp_path / "theirs", "stranger", hosts)
    other_name = make_certificate(ours, "elsewhere", ["192.0.2.7"])

    async with (
        a_tls_node(tmp_path, "p", PageLoopConfig(phase="prefill"), p) as prefill,
        a_tls_node(tmp_path, "d", PageLoopConfig(phase="decode"), d) as decode,
    ):
        pair = Pair(prefill, decode)
        await pair.hand_over("a", range(100))
        assert isinstance(await decode.said(), Step)
        assert await prefill.said() == Delivered(request_id="a")

        await greeted(decode.address, other_name)
        strangers = [
            stranger,
            # trusts our authority, and has no certificate of it
            replace(stranger, ca=d.ca),
            None,
        ]
        await is_refused_without_certificate(decode.address, d)
        for tls in strangers:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async with channel_for(decode.address, tls) as channel:
                    await channel.unary_unary(HELLO)(encode(Hello(edge="e")), timeout=PATIENCE_S)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.asyncio
async def test_a_node_that_goes_by_another_name_is_not_talked_to(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path / "ca", "d", ["127.0.0.1"])
    async with a_tls_node(tmp_path, "d", PageLoopConfig(phase="decode"), tls) as node:
        # the same machine, by a name that its certificate does not have
        address = node.address.replace("127.0.0.1", "localhost")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with channel_for(address, tls) as channel:
                await channel.unary_unary(HELLO)(encode(Hello(edge="e")), timeout=PATIENCE_S)

    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.asyncio
async def test_a_sender_without_certificates_is_lost_to_a_node_that_asks_for_them(
    tmp_path: Path,
) -> None:
    tls = make_certificate(tmp_path / "ca", "d", ["127.0.0.1"])
    async with (
        a_page_node(tmp_path, "p", PageLoopConfig(phase="prefill")) as prefill,
        a_tls_node(tmp_path, "d", PageLoopConfig(phase="decode"), tls) as decode,
    ):
        await Pair(prefill, decode).hand_over("a", range(10))

        failed = await prefill.said()
        assert isinstance(failed, Failed)
        assert failed.reason == "handoff"
        await prefill.until_clean()


@pytest.mark.parametrize("address", ["0.0.0.0:7000", "node-1:7000", "[::]:7000", "192.0.2.1:7000"])
def test_an_address_that_others_reach_needs_certificates(tmp_path: Path, address: str) -> None:
    file = tmp_path / "node.json"
    file.write_text(f'{{"address": "{address}", "engine": {{}}}}')

    with pytest.raises(ConfigurationError, match="certificates"):
        read_config(file)
    with pytest.raises(ConfigurationError, match="certificates"):
        channel_for(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:7000", "localhost:7000", "[::1]:7000", "unix:/tmp/node.sock"]
)
def test_an_address_of_this_machine_needs_none(tmp_path: Path, address: str) -> None:
    file = tmp_path / "node.json"
    file.write_text(f'{{"address": "{address}", "engine": {{}}}}')

    assert read_config(file).tls is None


def test_keys_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path / "ca", "node-1")

    for path in (Path(tls.key), tmp_path / "ca" / "ca.key"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_the_authority_is_made_once(tmp_path: Path) -> None:
    first = make_certificate(tmp_path, "node-1")
    before = Path(first.ca).read_bytes()

    second = make_certificate(tmp_path, "node-2")

    assert second.ca == first.ca
    assert Path(second.ca).read_bytes() == before


@pytest.mark.parametrize("name", ["", "ca", "../up", "a b", ".hidden"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="no name"):
        make_certificate(tmp_path, name)


def test_a_certificate_is_not_overwritten(tmp_path: Path) -> None:
    make_certificate(tmp_path, "node-1")

    with pytest.raises(ConfigurationError, match="exists"):
        make_certificate(tmp_path, "node-1")


def test_half_an_authority_is_refused(tmp_path: Path) -> None:
    make_certificate(tmp_path, "node-1")
    (tmp_path / "ca.key").unlink()

    with pytest.raises(ConfigurationError, match=r"ca\.key"):
        make_certificate(tmp_path, "node-2")


def test_the_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    make_certificate(tmp_path / "a", "node-1")
    make_certificate(tmp_path / "b", "node-1")
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())

    with pytest.raises(ConfigurationError, match="is not the key of"):
        make_certificate(tmp_path / "a", "node-2")


@pytest.mark.asyncio
async def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    current = make_certificate(tmp_path, "d", ["127.0.0.1"])
    expired = make_certificate(tmp_path, "old", ["127.0.0.1"], now=long_ago)
    async with a_tls_node(tmp_path, "d", PageLoopConfig(phase="decode"), current) as node:
        with pytest.raises(grpc.aio.AioRpcError):
            async with channel_for(node.address, expired) as channel:
                await channel.unary_unary(HELLO)(encode(Hello(edge="e")), timeout=PATIENCE_S)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    tls = replace(make_certificate(tmp_path, "d"), key="/no/such/key")

    with pytest.raises(ConfigurationError, match="/no/such/key"):
        channel_for("127.0.0.1:1", tls)
