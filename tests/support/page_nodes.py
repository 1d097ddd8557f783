"""Nodes that hand made-up pages to each other: real processes, and edges that say each message by hand."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import msgspec
from anyio.abc import Process

from support.fake_node import PATIENCE_S, a_submit, start_process
from support.page_loop import BUILD, MODEL, READING, SENDING, PageLoopConfig
from support.processes import children_of
from support.raw_edge import RawEdge, a_raw_edge
from tenantry_runtime.pool.__main__ import main
from tenantry_runtime.pool.grpc_options import STATISTICS, channel_for
from tenantry_runtime.pool.messages import (
    Deliver,
    NodeMessage,
    NodeStatistics,
    PrefixChanges,
    Reserved,
    Started,
    Submit,
)
from tenantry_runtime.pool.tls import TlsFiles
from tenantry_runtime.pool.wire import decode_statistics


@dataclass(frozen=True, slots=True)
class PageNode:
    address: str
    process: Process
    edge: RawEdge
    tls: TlsFiles | None

    @property
    def loop_pid(self) -> int:
        (pid,) = children_of(self.process.pid)
        return pid

    async def statistics(self) -> NodeStatistics:
        async with channel_for(self.address, self.tls) as channel:
            return decode_statistics(await channel.unary_unary(STATISTICS)(b"", timeout=PATIENCE_S))

    async def said(self) -> NodeMessage:
        """Return what the node says next, what its prefix trees have aside."""
        with anyio.fail_after(PATIENCE_S):
            while isinstance(message := await self.edge.read(), PrefixChanges):
                pass
        return message

    async def until_clean(self) -> None:
        """Wait until the loop runs nothing and each slot is where it belongs."""
        called_ns = time.time_ns()
        with anyio.fail_after(PATIENCE_S):
            while True:
                now = await self.statistics()
                slots = (now.num_free_pages[SENDING], now.num_free_pages[READING])
                busy = (now.num_running, now.num_waiting, *slots)
                if now.loop_turn_ns > called_ns and busy == (0, 0, 0, 0):
                    return


@dataclass(frozen=True, slots=True)
class Pair:
    prefill: PageNode
    decode: PageNode

    async def begin(self, name: str, token_ids: Sequence[int]) -> Deliver:
        """Go through the messages up to the one that starts the pushing, and return that one."""
        await self.prefill.edge.send(a_part(name, token_ids, "prefill"))
        assert await self.prefill.said() == Started(request_id=name)
        await self.decode.edge.send(a_part(name, token_ids, "decode"))
        reserved = await self.decode.said()
        assert isinstance(reserved, Reserved)
        return Deliver(request_id=name, address=self.decode.address, target=reserved.target)

    async def hand_over(self, name: str, token_ids: Sequence[int]) -> None:
        """Begin and let the pushing begin."""
        await self.prefill.edge.send(await self.begin(name, token_ids))


def a_part(name: str, token_ids: Sequence[int], part: str) -> Submit:
    submit = a_submit(name, prompt=list(token_ids))
    return msgspec.structs.replace(submit, model=MODEL, part=part)


@asynccontextmanager
async def a_page_node(
    folder: Path,
    name: str,
    config: PageLoopConfig,
    *,
    address: str | None = None,
    drain_s: float = 0.0,
    tls: TlsFiles | None = None,
) -> AsyncIterator[PageNode]:
    address = address or f"unix:{folder / name}.sock"
    file = folder / f"{name}.json"
    node = {"address": address, "engine": config, "drain_s": drain_s, "tls": tls}
    file.write_bytes(msgspec.json.encode(node))
    async with start_process("support.page_nodes", str(file)) as process:
        async with a_raw_edge(address, tls) as edge:
            yield PageNode(address, process, edge, tls)


@asynccontextmanager
async def a_pair(
    folder: Path,
    *,
    both: Mapping[str, Any] | None = None,
    prefill: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
) -> AsyncIterator[Pair]:
    """Run a prefill and a decode node; the mappings are fields of `PageLoopConfig`."""
    shared = dict(both or {})
    first = PageLoopConfig(phase="prefill", **{**shared, **(prefill or {})})
    second = PageLoopConfig(phase="decode", **{**shared, **(decode or {})})
    async with (
        a_page_node(folder, "prefill", first) as prefill_node,
        a_page_node(folder, "decode", second) as decode_node,
    ):
        yield Pair(prefill_node, decode_node)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build=BUILD))
