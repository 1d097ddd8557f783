"""Nodes that do whatever a node may do next, in any order: the client gets the answer or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import anyio
import anyio.lowlevel
from hypothesis import given, strategies as st

from support.examples import examples
from support.flows import PROMPT, Flow, check_nothing_is_held
from support.part_nodes import Opened, PartNode
from support.plain_text import KIMI
from tenantry_runtime.core import FinishReason
from tenantry_runtime.edge.nodes import Nodes
from tenantry_runtime.errors import (
    CacheIntegrityError,
    CapacityExceeded,
    GenerationFailed,
    HandoffFailed,
    NodeLost,
    TenantryError,
)

ANSWER = "the answer"
MAX_ACTIONS = 400

ERRORS: list[Callable[[], TenantryError]] = [
    lambda: CacheIntegrityError("a page"),
    lambda: HandoffFailed("a page"),
    lambda: GenerationFailed("internal: x"),
    lambda: NodeLost(KIMI.id),
    lambda: CapacityExceeded(),
]


class World:
    """Two nodes of each phase and one of both, and one request among them."""

    def __init__(self) -> None:
        self.nodes = [
            PartNode("p0", phases=["prefill"]),
            PartNode("p1", phases=["prefill"]),
            PartNode("d0", phases=["decode"]),
            PartNode("d1", phases=["decode"]),
            PartNode("w0"),
        ]
        self.num_preempted = 0
        self.num_failed = 0

    @property
    def opened(self) -> list[Opened]:
        return [opened for node in self.nodes for opened in node.opened]

    def good(self) -> Iterator[Callable[[], None]]:
        """What would bring the request on."""
        for opened in self.opened:
            if opened.is_over:
                continue
            mailbox = opened.mailbox
            match opened.submit.part:
                case "prefill" if mailbox.started is None:
                    yield opened.start
                case "prefill" if opened.delivers:
                    yield opened.delivered
                case "decode" if mailbox.target is None:
                    yield opened.reserve
                case "decode" if self._is_delivering(opened):
                    yield partial(self._say, opened)
                case "whole":
                    yield partial(self._say, opened)

    def bad(self, error: Callable[[], TenantryError]) -> Iterator[Callable[[], None]]:
        """What would hold it up."""
        for opened in self.opened:
            if not opened.is_over:
                yield partial(self._fail, opened, error())
                if opened.submit.part != "prefill":
                    yield partial(self._preempt, opened)

    def _is_delivering(self, target: Opened) -> bool:
        return any(opened.delivers for opened in self.opened if opened.submit.part == "prefill")

    def _say(self, opened: Opened) -> None:
        num_said = len(opened.submit.token_ids) - len(PROMPT) + opened.num_said
        is_last = num_said == len(ANSWER) - 1
        opened.say(ANSWER[num_said], FinishReason.STOP if is_last else None)

    def _fail(self, opened: Opened, error: TenantryError) -> None:
        self.num_failed += 1
        opened.fail(error)

    def _preempt(self, opened: Opened) -> None:
        self.num_preempted += 1
        opened.preempt()


async def play(data: st.DataObject) -> None:
    world = World()
    nodes = Nodes(world.nodes)
    flow = Flow(nodes=nodes)
    may_fail = data.draw(st.integers(0, 3))
    may_preempt = data.draw(st.integers(0, 3))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(flow.run)
        for _ in range(MAX_ACTIONS):
            for _ in range(data.draw(st.integers(1, 8))):
                await anyio.lowlevel.checkpoint()
            if flow.has_ended.is_set():
                break
            choices = list(world.good())
            if may_fail + may_preempt > world.num_failed + world.num_preempted:
                choices += world.bad(ERRORS[data.draw(st.integers(0, len(ERRORS) - 1))])
            if choices:
                choices[data.draw(st.integers(0, len(choices) - 1))]()
        await flow.ended()

    assert ANSWER.startswith(flow.text)
    assert (flow.text == ANSWER) != (flow.error is not None)
    assert all(opened.is_over for opened in world.opened)
    check_nothing_is_held(nodes)
    submits = [opened for opened in world.opened if opened.submit.part != "decode"]
    assert len(submits) <= 2 + world.num_preempted + world.num_failed
    if not world.num_failed:
        assert flow.error is None


@examples(3)
@given(st.data())
def test_whatever_nodes_do_the_client_gets_the_answer_or_an_error(data: st.DataObject) -> None:
    anyio.run(play, data)
