from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pytest
from msgspec.structs import replace

from support.constrained import a_constrained_submit, a_random_engine
from support.engine import a_submit, an_engine, run_to_end
from support.pools import Cluster
from tenantry_runtime.cache.pages import Tag
from tenantry_runtime.cache.tags import PageTags
from tenantry_runtime.core import JsonFormat
from tenantry_runtime.engine.loop import EngineLoop
from tenantry_runtime.pool.local_port import LocalExchange
from tenantry_runtime.pool.messages import HandoffEnd, NodeMessage, Step, Submit, Timings
from tenantry_runtime.text import OutputState, Wanted

KEPT = f"00-{'a' * 32}-{'b' * 16}-03"
NOT_KEPT = f"00-{'c' * 32}-{'d' * 16}-02"


def timings_of(loop: EngineLoop) -> dict[str, Timings]:
    """Run to the end; return what was told of each sequence."""
    told: dict[str, Timings] = {}
    while not loop.is_idle:
        for message in loop.turn():
            for tokens in message.sequences if isinstance(message, Step) else ():
                if tokens.timings is not None:
                    told[tokens.request_id] = tokens.timings
    return told


def traced(name: str, traceparent: str) -> Submit:
    return replace(a_submit(name, max_tokens=40, stop_token_ids=()), traceparent=traceparent)


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["in turn", "ahead"])
def test_a_sequence_is_told_how_many_shared_its_steps(runs_ahead: bool) -> None:
    loop = an_engine(runs_ahead=runs_ahead)
    loop.submit(a_submit("a", max_tokens=11, stop_token_ids=()))
    alone = timings_of(loop)["a"]
    for name in ("b", "c"):
        loop.submit(a_submit(name, max_tokens=11, stop_token_ids=()))
    shared = timings_of(loop)["c"]
    # the first token is the prefill's
    assert (alone.num_steps, alone.num_step_rows) == (10, 10)
    assert shared.num_steps == 10
    # the other was there for at least all steps but one
    assert 19 <= shared.num_step_rows <= 20


def test_a_sequence_waits_from_when_the_node_has_it_also_for_its_grammar() -> None:
    seconds = iter(range(1, 1_000_000))
    loop = a_random_engine("kimi", clock_s=lambda: float(next(seconds)))
    wanted = Wanted(initial=OutputState.CONTENT, format=JsonFormat(schema={"type": "boolean"}))
    loop.submit(a_constrained_submit("r", "kimi", wanted, max_tokens=20))
    submitted_s = next(seconds)
    told = timings_of(loop)["r"]
    # every reading of the clock is a second later than the one before
    assert told.queued_ns < 1e9 * submitted_s < told.prefill_started_ns
    assert told.prefill_started_ns < told.first_token_ns < told.finished_ns


def test_those_beside_it_are_named_where_their_traces_are_kept() -> None:
    loop = an_engine()
    loop.submit(a_submit("short", max_tokens=4, stop_token_ids=()))
    loop.submit(traced("kept", KEPT))
    loop.submit(traced("not kept", NOT_KEPT))
    loop.submit(a_submit("not traced", max_tokens=40, stop_token_ids=()))
    told = timings_of(loop)
    assert told["short"].beside == (KEPT,)


@dataclass(eq=False)
class Told(Cluster):
    """Two nodes, and the times that they told."""

    timings: dict[str, Timings] = field(default_factory=dict)

    def read(self, address: str, messages: Iterable[NodeMessage]) -> None:
        heard = list(messages)
        for message in heard:
            for tokens in message.sequences if isinstance(message, Step) else ():
                if tokens.timings is not None:
                    self.timings[tokens.request_id] = tokens.timings
        super().read(address, heard)


def test_a_hand_off_is_told_with_its_time_pages_and_bytes() -> None:
    exchange = LocalExchange()
    cluster = Told(
        {
            "p": an_engine(phases=("prefill",), num_pages=16, port=exchange.port("p")),
            "d": an_engine(phases=("decode",), num_pages=16, port=exchange.port("d")),
        }
    )
    cluster.send(a_submit("r", prompt=[5] * 150, max_tokens=3, stop_token_ids=()), "p", "d")
    cluster.run_to_end()
    timings = cluster.timings["r"]
    # 150 tokens in pages of 64
    assert timings.num_handoff_pages == 3
    page_bytes = cluster.nodes["d"].lanes[0].wire.page_bytes
    assert timings.num_handoff_bytes == 3 * page_bytes
    assert 0 < timings.handoff_started_ns < timings.handoff_ended_ns


def test_pages_that_stay_in_one_pool_change_hands_without_a_byte() -> None:
    loop = an_engine()
    loop.submit(a_submit("a", prompt=[3] * 70, max_tokens=3, stop_token_ids=()))
    timings = timings_of(loop)["a"]
    assert (timings.num_handoff_pages, timings.num_handoff_bytes) == (2, 0)
    assert (timings.handoff_started_ns, timings.handoff_ended_ns) == (0, 0)


def test_an_incident_names_the_trace_in_which_it_was_met() -> None:
    loop = an_engine()
    for name, traceparent in (("traced", KEPT), ("untraced", "")):
        loop.submit(traced(name, traceparent))
        loop.turn()
        tags = loop.lanes[-1].tracker
        [sequence] = [s for s in loop.lanes[-1].scheduler.admitted if s.request_id == name]
        ref = sequence.held.lease.ref(0)
        assert isinstance(tags, PageTags)
        tags.arrays.tag_P[ref.index] = Tag(ref.tag + 1)
        run_to_end(loop)
    told = {each.request_id: each.trace_id for each in loop.statistics().incidents}
    assert told == {"traced": "a" * 32, "untraced": ""}


def test_an_older_nodes_messages_are_understood_and_it_understands_ours() -> None:
    # five fields, as they were
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([1, 2, 3, 4, 5]), type=Timings) == Timings(
        1, 2, 3, 4, 5
    )

    class OldTimings(msgspec.Struct, array_like=True):
        queued_ns: int
        prefill_started_ns: int
        first_token_ns: int
        finished_ns: int
        num_prefill_chunks: int

    ours = msgspec.msgpack.encode(Timings(1, 2, 3, 4, 5, 6, 7, num_steps=8, beside=(KEPT,)))
    assert msgspec.msgpack.decode(ours, type=OldTimings).num_prefill_chunks == 5
    end = {
        "type": "end",
        "handoff": 1,
        "num_pages": 2,
        "first_token": 3,
        "queued_ns": 4,
        "prefill_started_ns": 5,
        "first_token_ns": 6,
        "num_prefill_chunks": 7,
    }
    old = msgspec.msgpack.decode(msgspec.msgpack.encode(end), type=HandoffEnd)
    assert (old.opened_ns, old.num_bytes) == (0, 0)
