"""An isolate says anything at all: the runtime lives, and keeps no task and no descriptor of it.

The number of cases is the profile's, times what makes `full` more than 100,000 of all four together.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Iterator, Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, strategies as st

from support.byte_streams import Pieces
from support.examples import examples
from support.guests import Heard, a_request
from support.hostile_isolates import Calling, Fetching, Peer, framed
from tenantry_runtime.workers.frames import (
    Break,
    Busy,
    Call,
    Credit,
    Data,
    End,
    Failed,
    Finished,
    Forget,
    FromIsolate,
    Loaded,
    LoadFailed,
    Log,
    NeverEnds,
    Respond,
    Returned,
)
from tenantry_runtime.workers.guest.wire import HEADER
from tenantry_runtime.workers.interface import CallRefused, HttpResponse, StreamResult
from tenantry_runtime.workers.isolate import IsolateLimits, NeverBegan, open_isolate

CASES = examples(13)

# few of each, so that they meet
ids = st.integers(0, 6) | st.sampled_from([(1 << 53) - 1])
texts = st.sampled_from(["", "x", "log", "warn", "\n", "é" * 50])
pieces = st.sampled_from([b"", b"x", bytes(1000), bytes(64 << 10)])
maybe = st.none() | ids
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)
headers = st.lists(st.tuples(texts, texts), max_size=3)

frames: st.SearchStrategy[FromIsolate] = st.one_of(
    st.builds(Respond, ids, st.sampled_from([200, 404, 99]), headers, st.none() | pieces, maybe),
    st.builds(Returned, ids, values),
    st.builds(Failed, ids, texts, texts),
    st.builds(Finished, ids),
    st.builds(Call, ids, ids, texts, st.sampled_from(sorted("vshrfw")), st.lists(values), maybe),
    st.builds(Forget, ids),
    st.builds(Log, ids, texts, texts, st.integers(-1, 3)),
    st.builds(NeverEnds, ids, texts, ids),
    st.builds(Busy, ids, texts, ids, ids, st.lists(ids, max_size=2)),
    st.builds(Data, ids, pieces),
    st.builds(End, ids),
    st.builds(Break, ids, texts),
    st.builds(Credit, ids, st.sampled_from([0, 1, 100, 1 << 20, 1 << 30])),
    st.builds(Loaded, st.just({}), st.sampled_from([1.0, float("nan")])),
    st.builds(LoadFailed, texts, texts),
)


async def call(binding: str, method: str, args: Sequence[object], body: object) -> object:
    """Answer each kind of answer, by the method's name."""
    match method:
        case "s":
            return StreamResult(stream=Pieces(b"a", b"b" * 70_000))
        case "h":
            return HttpResponse(status=200, body=Pieces(b"a", error=ConnectionError("gone")))
        case "r":
            raise CallRefused("Error", "no")
        case "w":
            await anyio.sleep_forever()
    return {"v": list(args)}


async def invade(said: bytes) -> None:
    """Say bytes in the middle of two invocations, then go; check what is left."""
    ours, theirs = socket.socketpair()
    heard, outside = Heard(call), Heard(call)
    fetching, calling, body = Fetching(heard), Calling(Heard(call)), Pieces(b"body")
    fetching.release.set()
    limits = IsolateLimits(max_calls=4, max_streams=4, num_logs=8, logs_per_s=0)
    with theirs, anyio.fail_after(20):
        async with open_isolate(ours, outside=outside, limits=limits) as isolate:
            async with anyio.create_task_group() as group:
                group.start_soon(fetching.run, isolate, a_request("/", body))
                group.start_soon(calling.run, isolate)
                await Peer(theirs).write(said)
                for _ in range(8):
                    await checkpoint()
                theirs.close()
                await isolate.ended.wait()
            assert isolate.statistics().num_invocations == 0
            assert isolate.statistics().num_streams == 0
    assert heard.num_finished == calling.heard.num_finished == 1
    assert body.is_closed or isinstance(fetching.error, NeverBegan)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    # what earlier tests have left is closed here, and not while descriptors are counted
    gc.collect()
    with asyncio.Runner() as runner:
        yield runner


def run(runner: asyncio.Runner, said: bytes) -> None:
    before = os.listdir("/proc/self/fd")
    runner.run(invade(said))
    assert os.listdir("/proc/self/fd") == before


@CASES
@given(said=st.binary(max_size=200))
def test_any_bytes(runner: asyncio.Runner, said: bytes) -> None:
    run(runner, said)


@CASES
@given(said=st.lists(frames, max_size=12))
def test_any_frames_in_any_order(runner: asyncio.Runner, said: list[FromIsolate]) -> None:
    run(runner, framed(*said))


@CASES
@given(
    said=st.lists(frames, min_size=1, max_size=6),
    changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 1 << 16) | st.none(),
)
def test_frames_with_a_few_bytes_changed(
    runner: asyncio.Runner,
    said: list[FromIsolate],
    changes: list[tuple[int, int]],
    cut: int | None,
) -> None:
    content = bytearray(framed(*said))
    for position, byte in changes:
        content[position % len(content)] = byte
    run(runner, bytes(content[:cut]))


@CASES
@given(content=st.binary(min_size=1, max_size=60), tag=st.sampled_from([20, 22, 23, 26, 28, 40]))
def test_frames_of_any_content(runner: asyncio.Runner, content: bytes, tag: int) -> None:
    body = bytes([0x90 | 6, tag]) + content
    run(runner, HEADER.pack(len(body)) + body)
