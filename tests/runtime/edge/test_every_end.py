"""However an answer ends, its client is told once and for all, and nothing of it is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import anyio.lowlevel
from hypothesis import Phase, given, strategies as st

from support.chat_stream import DONE, read_stream, records
from support.edges import RUN, AsgiCall, Edge, State, an_edge
from support.examples import examples
from support.flows import check_nothing_is_held
from support.openai_calls import ROOT
from support.plain_text import ARGUMENTS, CALL, CALL_END, END, KIMI, THINK_END
from support.requests import a_body
from support.token_source import FakeTokenSource, Step
from tenantry_runtime.edge.config import Limits
from tenantry_runtime.errors import (
    CacheIntegrityError,
    CapacityExceeded,
    ContextExceeded,
    GenerationFailed,
    HandoffFailed,
    NodeLost,
    NodeUnavailable,
    ReaderTooSlow,
    RequestTimeout,
    TenantryError,
)

Turn = Literal[
    "nothing", "the edge ends", "the client leaves", "the client stops reading", "silence"
]
"""What happens while the node is between two steps."""

PATIENCE_S = 20
LIMITS = Limits(stall_timeout_s=0.05, request_timeout_s=PATIENCE_S, keep_alive_s=0.02)
SILENT = Limits(stall_timeout_s=0.05, request_timeout_s=0.05, keep_alive_s=0.02)
PATHS = (RUN, f"{ROOT}/chat/completions")

A_BUG = [-1]
"""No character: the text layer fails on it in a way that nobody has foreseen."""

FAILURES: list[Callable[[], Step]] = [
    lambda: GenerationFailed("x"),
    lambda: HandoffFailed("x"),
    lambda: CacheIntegrityError("a page"),
    lambda: NodeLost(KIMI.id),
    lambda: NodeUnavailable(KIMI.id),
    lambda: CapacityExceeded(),
    lambda: ContextExceeded(2, 1),
    lambda: RequestTimeout(),
    lambda: ReaderTooSlow(1),
    lambda: TenantryError("x"),
    lambda: A_BUG,
]
SAID = ["a", "b" * 20, f"hm{THINK_END}", f"{CALL}f{ARGUMENTS}{{}}{CALL_END}", f"{CALL}f{ARGUMENTS}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How one request goes."""

    path: str
    before: Sequence[str]
    turn: Turn
    after: Sequence[str]
    last: Callable[[], Step] | None
    """None: the node ends the sequence without a reason."""
    stream: bool
    num_choices: int
    thinks: bool
    stop: tuple[str, ...]


courses = st.builds(
    Course,
    path=st.sampled_from(PATHS),
    before=st.lists(st.sampled_from(SAID), max_size=3),
    turn=st.sampled_from(
        ["nothing", "the edge ends", "the client leaves", "the client stops reading", "silence"]
    ),
    after=st.lists(st.sampled_from(SAID), max_size=3),
    last=st.sampled_from([*FAILURES, lambda: END, lambda: "z", None]),
    stream=st.booleans(),
    num_choices=st.sampled_from([1, 1, 2]),
    thinks=st.booleans(),
    stop=st.sampled_from([(), ("bb",), ("a",)]),
)


async def play(state: State, course: Course) -> None:
    gate = anyio.Event()
    last = [] if course.last is None else [course.last()]
    script: list[Step] = [*course.before, gate, *course.after, *last]
    node = FakeTokenSource(*script, finishes=course.last is not None)
    limits = SILENT if course.turn == "silence" else LIMITS
    fields: dict[str, Any] = {"chat_template_kwargs": {"thinking": course.thinks}}
    fields |= {"stop": course.stop, "n": course.num_choices}
    body = a_body(model=KIMI.id, stream=course.stream, **fields)
    async with an_edge(state, node, limits=limits) as edge, anyio.create_task_group() as tasks:
        call = AsgiCall(edge=edge, body=body, path=course.path)
        has_ended = anyio.Event()

        async def run() -> None:
            await call()
            has_ended.set()

        tasks.start_soon(run)
        with anyio.fail_after(PATIENCE_S):
            while node.num_steps < len(course.before) and not has_ended.is_set():
                await anyio.lowlevel.checkpoint()
            await take_turn(course.turn, edge, call, gate, has_ended)
            await has_ended.wait()
        check_nothing_is_left(edge, node)
    if not call.leaves.is_set() and call.takes:
        check_it_was_told(call, course)


async def take_turn(
    turn: Turn, edge: Edge, call: AsgiCall, gate: anyio.Event, has_ended: anyio.Event
) -> None:
    match turn:
        case "nothing":
            gate.set()
        case "the edge ends":
            edge.services.open_requests.close()
        case "the client leaves":
            call.leaves.set()
        case "the client stops reading":
            call.takes = False
            gate.set()
        case "silence":
            # an answer that has not begun is given up; one that has may be silent for ever
            with anyio.move_on_after(2 * SILENT.request_timeout_s):
                await has_ended.wait()
            gate.set()


def check_it_was_told(call: AsgiCall, course: Course) -> None:
    assert call.is_complete
    headers = dict(call.sent[0]["headers"])
    if headers[b"content-type"] == b"text/event-stream":
        assert (call.status, course.stream) == (200, True)
        if course.num_choices == 1:
            assert read_stream(call.printed.decode()).ended in {"done", "error"}
        *before, last = records(call.printed.decode())
        assert last == DONE or "error" in last
        assert not any(each == DONE or "error" in each for each in before)
        return
    body = json.loads(call.printed)
    if call.status == 200:
        assert not course.stream
        completion = body["result"] if course.path == RUN else body
        assert len(completion["choices"]) == course.num_choices
        reasons = {choice["finish_reason"] for choice in completion["choices"]}
        assert reasons <= {"stop", "length", "tool_calls"}
    else:
        assert (body["success"], len(body["errors"])) == (False, 1)


def check_nothing_is_left(edge: Edge, node: FakeTokenSource) -> None:
    assert node.num_open == 0
    assert edge.services.open_requests.statistics().num_open == 0
    check_nothing_is_held(edge.services.nodes)


# not made smaller: a course that never ends is known only when patience does
@examples(1.2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(course=courses)
def test_every_answer_ends_once_and_leaves_nothing(state: State, course: Course) -> None:
    anyio.run(play, state, course)
