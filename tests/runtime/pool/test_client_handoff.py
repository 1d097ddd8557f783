"""What the edge's client makes of all that a node can say, over a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from support.fake_node import PATIENCE_S
from support.routes import MODEL
from support.wire_node import WireNode, a_wire_node
from tenantry_runtime.core import FinishReason, Sampling
from tenantry_runtime.errors import (
    CacheIntegrityError,
    ConfigurationError,
    GenerationFailed,
    HandoffFailed,
    NodeLost,
    RequestTimeout,
    TenantryError,
)
from tenantry_runtime.pool.bell import Bell
from tenantry_runtime.pool.client import NodeClient, connect
from tenantry_runtime.pool.interface import NodeObserver, SequencePreempted
from tenantry_runtime.pool.liveness import Liveness
from tenantry_runtime.pool.mailbox import Mailbox
from tenantry_runtime.pool.messages import (
    Cancel,
    Deliver,
    Delivered,
    Failed,
    HandoffTarget,
    NodeDescription,
    NodeStatistics,
    Part,
    Preempted,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    Started,
    Step,
    Submit,
)
from tenantry_runtime.pool.tls import TlsFiles
from tenantry_runtime.pool.wire import PackedSubmit

TARGET = HandoffTarget(
    model=MODEL, incarnation=7, handoff=3, cache_format="fp8", first_page=1, pages=b"\x00" * 16
)


def a_submit(part: Part = "whole") -> Submit:
    return Submit(
        request_id="request",
        tenant="tenant",
        model=MODEL,
        token_ids=[1, 2, 3],
        sampling=Sampling(seed=1),
        stop_token_ids=(),
        max_tokens=9,
        part=part,
    )


@asynccontextmanager
async def a_connection(
    folder: Path,
    *,
    liveness: Liveness | None = None,
    observer: NodeObserver | None = None,
) -> AsyncIterator[tuple[WireNode, NodeClient]]:
    async with (
        a_wire_node(folder) as node,
        connect(node.address, liveness=liveness, observer=observer) as client,
    ):
        await client.ready()
        yield node, client


async def until(bell: Bell, is_true: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not is_true():
            await bell.rung()


def tokens(name: str, *ids: int, finish: FinishReason | None = None) -> Step:
    return Step(step=1, sequences=[SequenceTokens(request_id=name, token_ids=ids, finish=finish)])


@pytest.mark.asyncio
async def test_a_prefill_part_starts_is_told_where_to_deliver_and_ends(tmp_path: Path) -> None:
    bell = Bell()
    async with a_connection(tmp_path) as (node, client):
        async with client.generate(a_submit("prefill"), bell) as sequence:
            submit = await node.hear(PackedSubmit)
            assert (submit.part, sequence.started) == ("prefill", None)

            await node.say(Started(request_id=submit.request_id, cached_tokens=64))
            await until(bell, lambda: sequence.started is not None)
            assert sequence.started is not None and sequence.started.cached_tokens == 64

            sequence.deliver(Deliver(request_id="request", address="unix:d", target=TARGET))
            deliver = await node.hear(Deliver)
            assert deliver == Deliver(request_id=submit.request_id, address="unix:d", target=TARGET)

            await node.say(Delivered(request_id=submit.request_id))
            assert isinstance(sequence, Mailbox)
            await until(bell, lambda: sequence.is_over)

        # it has ended by itself: there is nothing to cancel
        async with client.generate(a_submit()):
            await node.hear(PackedSubmit, 1)
        assert (await node.hear(Cancel)).request_id != submit.request_id


@pytest.mark.asyncio
async def test_a_decode_part_is_reserved_and_then_says_all_tokens(tmp_path: Path) -> None:
    bell = Bell()
    async with a_connection(tmp_path) as (node, client):
        async with client.generate(a_submit("decode"), bell) as sequence:
            name = (await node.hear(PackedSubmit)).request_id
            await node.say(Reserved(request_id=name, target=TARGET))
            await until(bell, lambda: sequence.target is not None)
            assert sequence.target == TARGET and not sequence.has_tokens

            await node.say(tokens(name, 4, 5), tokens(name, 6, finish=FinishReason.STOP))
            await until(bell, lambda: sequence.has_tokens)
            read = [token async for piece in sequence for token in piece.token_ids]

    assert read == [4, 5, 6]


@pytest.mark.asyncio
async def test_a_preempted_sequence_says_what_it_had_and_is_not_cancelled(tmp_path: Path) -> None:
    async with a_connection(tmp_path) as (node, client):
        async with client.generate(a_submit()) as sequence:
            name = (await node.hear(PackedSubmit)).request_id
            await node.say(tokens(name, 4), Preempted(request_id=name))
            assert (await anext(sequence)).token_ids == (4,)
            with pytest.raises(SequencePreempted):
                await anext(sequence)

        async with client.generate(a_submit()):
            await node.hear(PackedSubmit, 1)
        assert (await node.hear(Cancel)).request_id != name


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("handoff", HandoffFailed),
        ("cache_integrity", CacheIntegrityError),
        ("internal", GenerationFailed),
        ("deadline", RequestTimeout),
    ],
)
async def test_each_reason_is_an_error_of_its_own(
    tmp_path: Path, reason: str, error: type[TenantryError]
) -> None:
    bell = Bell()
    async with a_connection(tmp_path) as (node, client):
        async with client.generate(a_submit("decode"), bell) as sequence:
            name = (await node.hear(PackedSubmit)).request_id
            await node.say(Failed(request_id=name, reason=reason, message="because"))
            await until(bell, lambda: sequence.error is not None)

    assert type(sequence.error) is error
    if isinstance(sequence.error, GenerationFailed):
        assert "because" in str(sequence.error)


@pytest.mark.asyncio
async def test_what_is_said_of_a_sequence_that_was_left_is_ignored(tmp_path: Path) -> None:
    async with a_connection(tmp_path) as (node, client):
        async with client.generate(a_submit("decode")) as left:
            name = (await node.hear(PackedSubmit)).request_id
        await node.hear(Cancel)
        await node.say(
            Started(request_id=name),
            Reserved(request_id=name, target=TARGET),
            tokens(name, 4),
            Preempted(request_id=name),
            Delivered(request_id=name),
            Failed(request_id=name, reason="internal", message="late"),
        )

        # behind all of that
        async with client.generate(a_submit()) as sequence:
            other = (await node.hear(PackedSubmit, 1)).request_id
            await node.say(tokens(other, 5, finish=FinishReason.STOP))
            assert (await anext(sequence)).token_ids == (5,)
        assert (left.started, left.target, left.has_tokens) == (None, None, False)


class Notes:
    """What nodes have said of themselves."""

    def __init__(self) -> None:
        self.reports: list[NodeStatistics] = []
        self.changes: list[PrefixChanges] = []
        self.losses: list[tuple[str, list[str]]] = []
        self.leaves: list[list[str]] = []
        self.bell = Bell()

    def reported(self, node: str, statistics: NodeStatistics) -> None:
        self.reports.append(statistics)
        self.bell.ring()

    def changed(self, node: str, description: NodeDescription, changes: PrefixChanges) -> None:
        assert description.incarnation == 7
        self.changes.append(changes)
        self.bell.ring()

    def lost(self, node: str, reason: str, unfinished: Sequence[Submit]) -> None:
        self.losses.append((reason, [each.request_id for each in unfinished]))
        self.bell.ring()

    def left(self, node: str, cut_off: Sequence[Submit]) -> None:
        self.leaves.append([each.request_id for each in cut_off])
        self.bell.ring()


@pytest.mark.asyncio
async def test_an_observer_hears_of_prefixes_and_loads(tmp_path: Path) -> None:
    notes = Notes()
    changes = PrefixChanges(model=MODEL, phase="prefill", added=b"\x01" * 8, removed=b"")
    liveness = Liveness(ask_every_s=0.01)
    async with a_connection(tmp_path, liveness=liveness, observer=notes) as (node, _):
        await node.say(changes)
        await until(notes.bell, lambda: bool(notes.changes and notes.reports))

    assert notes.changes == [changes]
    assert notes.reports[0] == node.statistics


@pytest.mark.asyncio
async def test_sequences_of_a_loop_that_is_silent_for_too_long_are_given_up(
    tmp_path: Path,
) -> None:
    notes = Notes()
    liveness = Liveness(ask_every_s=0.01, stale_after_s=0.2, lost_after_s=0.3)
    async with a_connection(tmp_path, liveness=liveness, observer=notes) as (node, client):
        async with client.generate(a_submit()) as sequence:
            name = (await node.hear(PackedSubmit)).request_id
            # the front answers, and the loop's last turn stays the same
            with anyio.fail_after(PATIENCE_S), pytest.raises(NodeLost):
                await anext(sequence)

        assert not client.is_healthy
        assert (await node.hear(Cancel)).request_id == name
    # and an edge that leaves has lost nobody
    assert notes.losses == [("its step loop has not turned for 0.3 s", ["request"])]
    assert notes.leaves == []


@pytest.mark.asyncio
@pytest.mark.parametrize("is_failure", [True, False], ids=["fails", "leaves in order"])
async def test_an_observer_hears_how_a_node_ends_and_what_it_had(
    tmp_path: Path, is_failure: bool
) -> None:
    notes = Notes()
    async with (
        a_connection(tmp_path, observer=notes) as (node, client),
        client.generate(a_submit()) as cut_off,
        client.generate(replace(a_submit(), request_id="other")) as running,
    ):
        name = (await node.hear(PackedSubmit)).request_id
        await node.say(Failed(request_id=name, reason="internal", message="I end", is_cut_off=True))
        await node.end("the step loop died" if is_failure else None)
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(GenerationFailed, match="I end"):
                await anext(cut_off)
            with pytest.raises(NodeLost):
                await anext(running)

    had = ["request", "other"]
    if is_failure:
        assert (notes.losses, notes.leaves) == ([("UNAVAILABLE: the step loop died", had)], [])
    else:
        assert (notes.losses, notes.leaves) == ([], [had])


def test_another_machine_is_not_reached_without_certificates(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="certificates"):
        connect("10.0.0.2:7000")
    missing = TlsFiles(ca=str(tmp_path / "ca.pem"), certificate="x", key="y")
    with pytest.raises(ConfigurationError, match=r"ca\.pem"):
        connect("10.0.0.2:7000", tls=missing)
