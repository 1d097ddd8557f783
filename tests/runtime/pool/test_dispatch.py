"""The front's book of who waits for what: nothing lost, nothing mixed up, nothing left behind."""

from __future__ import annotations

import anyio
import pytest
from msgspec.structs import replace

from support.fake_node import a_submit
from tenantry_runtime.core import FinishReason
from tenantry_runtime.pool.dispatch import (
    MAX_PENDING_NOTICES,
    MAX_PENDING_TOKENS,
    Dispatch,
    DispatchStatistics,
    EdgeStream,
)
from tenantry_runtime.pool.frames import MalformedFrame
from tenantry_runtime.pool.messages import (
    HERE,
    Cancel,
    Deliver,
    Delivered,
    Failed,
    HandoffTarget,
    Preempted,
    PrefixChanges,
    Reserved,
    SequenceTokens,
    Started,
    Step,
)
from tenantry_runtime.pool.wire import pack

NOTHING = DispatchStatistics(num_edges=0, num_sequences=0, num_pending_tokens=0)


def admit(dispatch: Dispatch, stream: EdgeStream, request_id: str) -> str:
    """Admit a sequence and return the name that the step loop knows it by."""
    return dispatch.admit(stream, pack(a_submit(request_id))).request_id


def a_step(*sequences: tuple[str, tuple[int, ...]], step: int = 1) -> Step:
    return Step(step=step, sequences=[SequenceTokens(name, ids) for name, ids in sequences])


@pytest.mark.asyncio
async def test_each_edge_gets_its_own_sequences_in_one_message_under_its_own_ids() -> None:
    dispatch = Dispatch()
    first, second = dispatch.open(), dispatch.open()
    a, b, same_id = (
        admit(dispatch, first, "a"),
        admit(dispatch, first, "b"),
        admit(dispatch, second, "a"),
    )

    dispatch.deliver(a_step((a, (1,)), (same_id, (2,)), (b, (3,)), step=9))

    assert await first.take() == [a_step(("a", (1,)), ("b", (3,)), step=9)]
    assert await second.take() == [a_step(("a", (2,)), step=9)]


@pytest.mark.asyncio
async def test_steps_that_wait_are_merged_in_order() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    name = admit(dispatch, stream, "a")

    dispatch.deliver(a_step((name, (1,))))
    dispatch.deliver(a_step((name, (2, 3)), step=2))
    last = SequenceTokens(name, (4,), FinishReason.LENGTH)
    dispatch.deliver(Step(step=3, sequences=[last]))

    (step,) = await stream.take()
    assert step == Step(step=3, sequences=[SequenceTokens("a", (1, 2, 3, 4), FinishReason.LENGTH)])


@pytest.mark.asyncio
async def test_the_cached_count_of_the_first_tokens_survives_merging() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    name = admit(dispatch, stream, "a")

    dispatch.deliver(Step(step=1, sequences=[SequenceTokens(name, (1,), cached_tokens=64)]))
    dispatch.deliver(a_step((name, (2,))))

    (step,) = await stream.take()
    assert isinstance(step, Step)
    assert step.sequences[0].cached_tokens == 64


def test_tokens_of_a_cancelled_sequence_do_not_reach_a_later_one_of_the_same_id() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    earlier = admit(dispatch, stream, "a")
    assert dispatch.cancel(stream, "a") == Cancel(request_id=earlier)

    later = admit(dispatch, stream, "a")
    dispatch.deliver(a_step((earlier, (1,))))

    assert later != earlier
    assert not stream.has_pending


def test_cancelling_what_is_not_running_says_nothing_to_the_loop() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    name = admit(dispatch, stream, "a")
    dispatch.deliver(Step(step=1, sequences=[SequenceTokens(name, (1,), FinishReason.STOP)]))

    assert dispatch.cancel(stream, "a") is None
    assert dispatch.cancel(stream, "never") is None


def test_a_closed_stream_cancels_its_sequences_alone_and_leaves_nothing() -> None:
    dispatch = Dispatch()
    leaving, staying = dispatch.open(), dispatch.open()
    a, b = admit(dispatch, leaving, "a"), admit(dispatch, leaving, "b")
    admit(dispatch, staying, "c")

    assert dispatch.close(leaving) == [Cancel(request_id=a), Cancel(request_id=b)]
    assert dispatch.statistics().num_sequences == 1
    assert len(dispatch.close(staying)) == 1
    assert dispatch.statistics() == NOTHING


@pytest.mark.asyncio
async def test_an_edge_that_does_not_read_loses_its_sequences_and_no_other_edge_does() -> None:
    dispatch = Dispatch()
    slow, other = dispatch.open(), dispatch.open()
    long, short = admit(dispatch, slow, "long"), admit(dispatch, other, "short")
    a_page = tuple(range(64))

    cancels: list[Cancel] = []
    num_delivered = 0
    while not cancels:
        cancels = dispatch.deliver(a_step((long, a_page)))
        num_delivered += 64
    dispatch.deliver(a_step((short, (1,))))

    assert cancels == [Cancel(request_id=long)]
    assert num_delivered == MAX_PENDING_TOKENS + 64
    step, failed = await slow.take()
    assert isinstance(step, Step) and isinstance(failed, Failed)
    assert step.sequences[0].token_ids == a_page * (MAX_PENDING_TOKENS // 64)
    assert (failed.request_id, failed.reason) == ("long", "internal")
    assert await other.take() == [a_step(("short", (1,)))]


@pytest.mark.asyncio
async def test_an_edge_that_does_not_read_its_failures_may_not_submit_more() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    for number in range(MAX_PENDING_NOTICES):
        name = admit(dispatch, stream, str(number))
        dispatch.report(Failed(request_id=name, reason="capacity", message="full"))

    has_room = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            await stream.wait_for_room()
            has_room.set()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not has_room.is_set()
        assert len(await stream.take()) == MAX_PENDING_NOTICES
        await has_room.wait()


@pytest.mark.asyncio
async def test_the_end_fails_what_runs_after_the_tokens_it_had() -> None:
    dispatch = Dispatch()
    stream, quiet = dispatch.open(), dispatch.open()
    name = admit(dispatch, stream, "a")
    dispatch.deliver(a_step((name, (1,))))

    dispatch.end("the loop died")

    assert await stream.take() == [
        a_step(("a", (1,))),
        Failed(request_id="a", reason="internal", message="the loop died", is_cut_off=True),
    ]
    assert await stream.take() == []
    assert await quiet.take() == []


def test_an_id_that_is_running_is_refused() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    admit(dispatch, stream, "a")

    with pytest.raises(MalformedFrame, match="running already"):
        admit(dispatch, stream, "a")


TARGET = HandoffTarget(
    model="m", incarnation=0, handoff=3, cache_format="fp8", first_page=0, pages=b""
)


@pytest.mark.asyncio
async def test_what_becomes_of_a_hand_off_reaches_its_edge_under_its_own_id() -> None:
    dispatch = Dispatch(incarnation=42)
    ours, other = dispatch.open(), dispatch.open()
    a, b = admit(dispatch, ours, "a"), admit(dispatch, ours, "b")
    same_id = admit(dispatch, other, "a")

    for report in (
        Started(request_id=a),
        Reserved(request_id=b, target=TARGET),
        Started(request_id=same_id),
        Delivered(request_id=a),
        Preempted(request_id=b),
    ):
        dispatch.report(report)

    assert await ours.take() == [
        Started(request_id="a"),
        Reserved(request_id="b", target=replace(TARGET, incarnation=42)),
        Delivered(request_id="a"),
        Preempted(request_id="b"),
    ]
    assert await other.take() == [Started(request_id="a")]


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [Delivered, Preempted])
async def test_a_part_that_is_delivered_or_preempted_is_over(
    kind: type[Delivered] | type[Preempted],
) -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    name = admit(dispatch, stream, "a")
    dispatch.deliver(a_step((name, (1,))))
    dispatch.report(kind(request_id=name))

    assert dispatch.statistics().num_sequences == 0
    # behind the tokens that it had
    assert await stream.take() == [a_step(("a", (1,))), kind(request_id="a")]
    assert dispatch.cancel(stream, "a") is None
    dispatch.report(Started(request_id=name))
    assert not stream.has_pending


def test_where_pages_go_is_told_under_the_name_of_the_loop() -> None:
    dispatch = Dispatch(incarnation=42)
    stream, other = dispatch.open(), dispatch.open()
    name = admit(dispatch, stream, "a")
    deliver = Deliver(request_id="a", address="unix:/d", target=TARGET)

    assert dispatch.direct(stream, deliver) == replace(deliver, request_id=name)
    assert dispatch.direct(other, deliver) is None
    dispatch.cancel(stream, "a")
    assert dispatch.direct(stream, deliver) is None


@pytest.mark.parametrize(("incarnation", "address"), [(42, HERE), (41, "unix:/d")])
def test_pages_for_this_life_of_the_node_do_not_leave_it(incarnation: int, address: str) -> None:
    dispatch = Dispatch(incarnation=42)
    stream = dispatch.open()
    admit(dispatch, stream, "a")
    target = replace(TARGET, incarnation=incarnation)

    directed = dispatch.direct(stream, Deliver(request_id="a", address="unix:/d", target=target))

    assert directed is not None
    assert directed.address == address


@pytest.mark.asyncio
async def test_all_edges_hear_of_prefixes_and_a_new_one_gets_all_first() -> None:
    dispatch = Dispatch()
    early = dispatch.open()
    first = PrefixChanges(model="m", phase="prefill", added=bytes(8), removed=b"")
    second = replace(first, added=b"\1" + bytes(7), removed=bytes(8))
    dispatch.broadcast(first)
    assert await early.take() == [first]
    dispatch.broadcast(second)
    late = dispatch.open()

    assert await early.take() == [second]
    assert await late.take() == [replace(second, removed=b"", is_whole=True)]


@pytest.mark.asyncio
async def test_quiet_comes_when_the_last_sequence_has_ended() -> None:
    dispatch = Dispatch()
    stream = dispatch.open()
    names = [admit(dispatch, stream, request_id) for request_id in "ab"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(dispatch.until_quiet)
        for name in names:
            await anyio.wait_all_tasks_blocked()
            dispatch.report(Failed(request_id=name, reason="internal", message=""))

    dispatch.refuse(stream, "c", "draining")
    *_, refused = await stream.take()
    assert refused == Failed(request_id="c", reason="capacity", message="draining")
