"""Nodes in process that are told what to say, one message at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from support.plain_text import KIMI
from tenantry_runtime.core import FinishReason, Phase
from tenantry_runtime.errors import NodeUnavailable, TenantryError
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.interface import RunningSequence, SequencePreempted
from tenantry_runtime.pool.mailbox import Mailbox
from tenantry_runtime.pool.messages import (
    Deliver,
    Delivered,
    HandoffTarget,
    MemberDescription,
    NodeDescription,
    Reserved,
    SequenceTokens,
    ServedElsewhere,
    Started,
    Submit,
)
from tenantry_runtime.pool.page_map import PageMaps

BOTH: tuple[Phase, ...] = ("prefill", "decode")


@dataclass(slots=True, eq=False, kw_only=True)
class Opened:
    """One sequence that a node was given."""

    node: PartNode
    submit: Submit
    mailbox: Mailbox
    delivers: list[Deliver] = field(default_factory=list)
    is_left: bool = False
    """The edge has left it before its end: a real one is sent a cancellation."""
    num_said: int = 0

    @property
    def is_over(self) -> bool:
        return self.is_left or self.mailbox.is_over

    def start(self, cached_tokens: int | None = None) -> None:
        self.mailbox.tell(Started(request_id=self.submit.request_id, cached_tokens=cached_tokens))

    def reserve(self, handoff: int = 1) -> None:
        target = HandoffTarget(
            model=self.submit.model,
            incarnation=1,
            handoff=handoff,
            cache_format="bf16",
            first_page=0,
            pages=b"",
        )
        self.mailbox.tell(Reserved(request_id=self.submit.request_id, target=target))

    def delivered(self) -> None:
        self.mailbox.tell(Delivered(request_id=self.submit.request_id))

    def say(self, text: str, finish: FinishReason | None = None, cached_tokens: int = 0) -> None:
        self.num_said += len(text)
        self.mailbox.add(
            SequenceTokens(
                request_id=self.submit.request_id,
                token_ids=tuple(map(ord, text)),
                finish=finish,
                cached_tokens=cached_tokens,
            )
        )

    def fail(self, error: TenantryError) -> None:
        self.mailbox.fail(error)

    def preempt(self) -> None:
        self.mailbox.fail(SequencePreempted())


class PartNode:
    """A `TokenSource`; `behave`, if there is one, is asked what to do with each sequence."""

    def __init__(
        self,
        address: str,
        *,
        phases: Sequence[Phase] = BOTH,
        reached_at: str = "",
        behave: Callable[[Opened], None] | None = None,
    ) -> None:
        self.address = address
        self.is_healthy = True
        self.opened: list[Opened] = []
        self.description = NodeDescription(
            version=1,
            incarnation=1,
            address=reached_at,
            members=tuple(
                MemberDescription(
                    model=KIMI.id,
                    phase=phase,
                    weights_format="bf16",
                    cache_format="bf16",
                    page_tokens=64,
                    num_pages=1000,
                    context_tokens=1 << 20,
                    revision="0",
                )
                for phase in phases
            ),
        )
        self.behave = behave
        self._has_grown = anyio.Event()

    @asynccontextmanager
    async def generate(
        self, submit: Submit, bell: Bell | None = None
    ) -> AsyncIterator[RunningSequence]:
        if not self.is_healthy:
            raise NodeUnavailable(submit.model)
        delivers: list[Deliver] = []
        mailbox = Mailbox(bell, post=delivers.append)
        opened = Opened(node=self, submit=submit, mailbox=mailbox, delivers=delivers)
        self.opened.append(opened)
        self._has_grown.set()
        self._has_grown = anyio.Event()
        if self.behave is not None:
            self.behave(opened)
        try:
            # as long as a queue that is full
            await anyio.lowlevel.checkpoint()
            yield mailbox
        finally:
            opened.is_left = not mailbox.is_over

    async def pages(self) -> PageMaps:
        return PageMaps(pools=())

    def pass_on(self, served: ServedElsewhere) -> None:
        """What others give makes no difference to it."""

    async def sequence(self, number: int = 0) -> Opened:
        """Wait for the node's next sequence, or for the one of that number."""
        with anyio.fail_after(5):
            while len(self.opened) <= number:
                await self._has_grown.wait()
        return self.opened[number]

    def die(self, error: Callable[[], TenantryError]) -> None:
        """Fail all that runs, and be there no more."""
        self.is_healthy = False
        for opened in self.opened:
            if not opened.is_over:
                opened.fail(error())


def pair(*, reached_at: str = "") -> tuple[PartNode, PartNode]:
    """A node of each phase."""
    return (
        PartNode("prefill", phases=["prefill"]),
        PartNode("decode", phases=["decode"], reached_at=reached_at),
    )


async def hand_over(prefill: PartNode, decode: PartNode, number: int = 0) -> tuple[Opened, Opened]:
    """Bring a sequence to where its pages are on their way."""
    source = await prefill.sequence(number)
    source.start()
    target = await decode.sequence(number)
    target.reserve()
    with anyio.fail_after(5):
        while not source.delivers:
            await anyio.lowlevel.checkpoint()
    return source, target


class Cluster:
    """Prefill and decode nodes that do what real ones do, a step in every turn of the event loop."""

    def __init__(
        self,
        *,
        text: str,
        num_prefill: int = 1,
        num_decode: int = 1,
        trouble: Callable[[Opened], None] | None = None,
        trouble_at: int = 0,
    ) -> None:
        """`trouble` befalls the first sequence that decodes, after so many tokens."""
        self.text = text
        self._trouble = trouble
        self._trouble_at = trouble_at
        self.prefill = [
            PartNode(f"p{number}", phases=["prefill"], behave=self._prefills)
            for number in range(num_prefill)
        ]
        self.decode = [
            PartNode(f"d{number}", phases=["decode"], behave=self.decodes)
            for number in range(num_decode)
        ]
        self._by_request: dict[str, Opened] = {}
        self._first_target: Opened | None = None

    @property
    def nodes(self) -> list[PartNode]:
        return [*self.prefill, *self.decode]

    @property
    def opened(self) -> list[Opened]:
        return [opened for node in self.nodes for opened in node.opened]

    def _prefills(self, opened: Opened) -> None:
        def await_delivery() -> None:
            if opened.delivers:
                then(opened, self._pass_on(opened))
            else:
                then(opened, [await_delivery])

        then(opened, [opened.start, await_delivery])

    def decodes(self, opened: Opened) -> None:
        """Let a sequence be decoded as it should be."""
        self._by_request[opened.submit.request_id] = opened
        self._first_target = self._first_target or opened
        then(opened, [opened.reserve])

    def _pass_on(self, source: Opened) -> list[Callable[[], None]]:
        target = self._by_request[source.submit.request_id]
        num_done = len(source.submit.token_ids) - len(self.opened[0].submit.token_ids)

        def begin() -> None:
            rest = self.text[num_done:]
            last = len(rest) - 1
            steps = [
                say(target, char, FinishReason.LENGTH if index == last else None)
                for index, char in enumerate(rest)
            ]
            if self._trouble is not None and target is self._first_target:
                trouble = self._trouble
                steps[self._trouble_at :] = [lambda: trouble(target)]
            then(target, steps)

        return [begin, source.delivered]


def say(opened: Opened, text: str, finish: FinishReason | None) -> Callable[[], None]:
    return lambda: opened.say(text, finish)


def then(opened: Opened, steps: Sequence[Callable[[], None]]) -> None:
    """Do one step in each of the next turns of the event loop, as long as anyone waits for it."""
    if not steps:
        return

    def next_step() -> None:
        if not opened.is_over:
            steps[0]()
            then(opened, steps[1:])

    asyncio.get_running_loop().call_soon(next_step)
