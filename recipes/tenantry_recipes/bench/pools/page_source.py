"""A prefill node that computes nothing: it hands prompts over whose pages are all zeros.

To the decode node they are pages like any other: reserved, checked, written, and read by steps.
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from itertools import count
from typing import Any

import grpc
import msgspec
from msgspec.structs import replace

from tenantry_kernels.page_digest import bind
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_runtime.cache.wire_pages import LAYER_GROUP
from tenantry_runtime.core import PAGE_TOKENS, Sampling
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.client import NodeClient, connect
from tenantry_runtime.pool.grpc_options import PUSH, channel_for
from tenantry_runtime.pool.interface import RunningSequence
from tenantry_runtime.pool.lent_pages import lend
from tenantry_runtime.pool.messages import (
    HandoffEnd,
    HandoffTarget,
    LentMemory,
    MemberDescription,
    PageHeader,
    PushOpen,
    Submit,
)
from tenantry_runtime.pool.push_frames import (
    Credit,
    PushOutcome,
    end_frame,
    lent_frame,
    num_lent_together,
    num_together,
    open_frame,
    page_frames,
    read_receiver_frame,
    ready_frame,
)
from tenantry_runtime.pool.shared_pages import SlotLayout, create_pages_file, set_size

from .pace import Pace

FIRST_TOKEN = 1
CHUNK_PAGES = 8
"""Pushed at a time, as a prefill member does with what a step of 512 tokens has completed."""
_NUM_WORDS = 256
"""Prompts are drawn from so many token ids: few enough for any vocabulary, enough that no two share a page."""


class ZeroPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a page of zeros is on the wire."""

    num_bytes: int
    digest: int
    """Of `page_digest`, not bound to anything."""


class PageSource:
    """Hands sequences over to one decode node."""

    # grpc has no types
    def __init__(
        self,
        node: NodeClient,
        channel: Any,
        member: MemberDescription,
        page: ZeroPage,
        memory: LentMemory | None,
        seed: int,
    ) -> None:
        self.num_bytes = 0
        """Of the pages pushed so far."""
        self._node = node
        self._channel = channel
        # what must agree does, for it is the decode member's own
        self._member = replace(member, phase="prefill")
        self._page = page
        self._zeros = memoryview(bytes(page.num_bytes))
        self._memory = memory
        self._rng = random.Random(seed)
        self._names = (f"{seed}.{number}" for number in count())

    @asynccontextmanager
    async def handed_over(
        self, num_prompt: int, num_tokens: int, *, pace: Pace
    ) -> AsyncIterator[RunningSequence]:
        """Run one sequence on the decode node from its second token on; yield it as it begins to.

        With `num_tokens` of 1 there is none: the sequence ends with its hand-off.
        """
        submit = self._submit(num_prompt, num_tokens)
        bell = Bell()
        async with self._node.generate(submit, bell) as sequence:
            while sequence.target is None:
                if sequence.error is not None:
                    raise sequence.error
                await bell.rung()
            await self._push(sequence.target, submit, pace)
            yield sequence

    def _submit(self, num_prompt: int, num_tokens: int) -> Submit:
        return Submit(
            request_id=next(self._names),
            tenant="benchmark",
            model=self._member.model,
            token_ids=self._rng.choices(range(_NUM_WORDS), k=num_prompt),
            sampling=Sampling(seed=0, temperature=0.0),
            # nothing ends an answer but its length
            stop_token_ids=(),
            max_tokens=num_tokens,
            part="decode",
        )

    async def _push(self, target: HandoffTarget, submit: Submit, pace: Pace) -> None:
        headers = list(self._headers(target, len(submit.token_ids)))
        call = self._channel.stream_stream(PUSH)()
        try:
            opening = PushOpen(target=target, source=self._member, memory=self._memory)
            await call.write(open_frame(opening))
            await call.write(ready_frame(len(headers)))
            credit = Credit(0)
            num_sent = 0
            while num_sent < len(headers):
                while credit.num_pages <= num_sent:
                    credit = await _credit(call)
                ready = headers[num_sent : min(credit.num_pages, num_sent + CHUNK_PAGES)]
                together = num_together if credit.num_read is None else num_lent_together
                ready = ready[: together(ready)]
                await pace.take(sum(header.num_bytes for header in ready))
                for frame in self._frames(len(headers), ready, is_read=credit.num_read is not None):
                    await call.write(frame)
                num_sent += len(ready)
                self.num_bytes += sum(header.num_bytes for header in ready)
            await call.write(end_frame(_end(target, len(headers))))
            await _until_admitted(call)
        finally:
            call.cancel()

    def _frames(
        self, num_ready: int, headers: Sequence[PageHeader], *, is_read: bool
    ) -> Iterator[bytes]:
        if is_read:
            # all are the same page, whose slot nobody writes
            yield lent_frame(num_ready, headers, [0] * len(headers))
        else:
            yield from page_frames(num_ready, headers, [self._zeros] * len(headers))

    def _headers(self, target: HandoffTarget, num_prompt: int) -> Iterator[PageHeader]:
        reserved = struct.iter_unpack("<qq", target.pages)
        for page, (index, tag) in enumerate(reserved, target.first_page):
            yield PageHeader(
                handoff=target.handoff,
                logical_page=page,
                index=index,
                tag=tag,
                num_tokens=min(PAGE_TOKENS, num_prompt - page * PAGE_TOKENS),
                digest=bind(self._page.digest, target.handoff, page, LAYER_GROUP, tag),
                num_bytes=self._page.num_bytes,
            )


@asynccontextmanager
async def a_page_source(
    address: str, page: ZeroPage, *, seed: int, lends: bool = True
) -> AsyncIterator[PageSource]:
    """Connect to a decode node of one model; wait until it is ready.

    Pages are read where they lie, as between nodes of one machine; without `lends` they are sent.
    """
    async with (
        connect(address, edge=f"benchmark {seed}") as node,
        channel_for(address) as channel,
    ):
        (member,) = (await node.ready()).members
        with _lent(page) if lends else nullcontext() as memory:
            yield PageSource(node, channel, member, page, memory, seed)


@contextmanager
def _lent(page: ZeroPage) -> Iterator[LentMemory | None]:
    """Lend one slot, in which the page is: a new file is all zeros."""
    layout = SlotLayout(slot_bytes=page.num_bytes, num_slots=1)
    fd = create_pages_file()
    try:
        set_size(fd, layout)
        yield lend(fd, layout)
    finally:
        os.close(fd)


def _end(target: HandoffTarget, num_pages: int) -> HandoffEnd:
    now_ns = time.time_ns()
    return HandoffEnd(
        handoff=target.handoff,
        num_pages=num_pages,
        first_token=FIRST_TOKEN,
        queued_ns=now_ns,
        prefill_started_ns=now_ns,
        first_token_ns=now_ns,
        num_prefill_chunks=1,
    )


async def _credit(call: Any) -> Credit:
    match await _said(call):
        case Credit() as credit:
            return credit
        case PushOutcome(problem=problem):
            raise BenchmarkError(f"a hand-off is refused: {problem}")


async def _until_admitted(call: Any) -> None:
    while isinstance(frame := await _said(call), Credit):
        pass
    if frame.problem is not None:
        raise BenchmarkError(f"a hand-off failed: {frame.problem}")


async def _said(call: Any) -> Credit | PushOutcome:
    frame = await call.read()
    if frame is grpc.aio.EOF:
        raise BenchmarkError(f"a hand-off broke off: {await call.details()}")
    return read_receiver_frame(frame)
