"""The edge's loop runs what threads give it, whether it sleeps, works or is about to sleep."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tenantry_runtime.edge.event_loop import EdgeLoop


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=EdgeLoop) as runner:
        yield runner


def test_a_loop_that_sleeps_is_woken(runner: asyncio.Runner) -> None:
    async def sleep() -> str:
        loop = asyncio.get_running_loop()
        came = loop.create_future()
        # a thread that begins when the loop has nothing left to do
        timer = threading.Timer(0.05, loop.call_soon_threadsafe, [came.set_result, "woken"])
        timer.start()
        async with asyncio.timeout(10):
            return str(await came)

    assert runner.run(sleep()) == "woken"


def test_nothing_that_threads_give_is_lost_or_left_lying(runner: asyncio.Runner) -> None:
    num_each, num_threads = 2000, 3

    async def take() -> int:
        loop = asyncio.get_running_loop()
        num_taken = 0
        is_turn = [threading.Event() for _ in range(num_threads)]
        all_taken = loop.create_future()

        def took(number: int) -> None:
            nonlocal num_taken
            num_taken += 1
            is_turn[number].set()
            if num_taken == num_each * num_threads:
                all_taken.set_result(None)

        def give(number: int) -> None:
            # the next when the last was taken, so that the loop is always about to sleep
            for _ in range(num_each):
                is_turn[number].clear()
                loop.call_soon_threadsafe(took, number)
                assert is_turn[number].wait(10)

        threads = [threading.Thread(target=give, args=[number]) for number in range(num_threads)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(30):
            await all_taken
        for thread in threads:
            thread.join()
        return num_taken

    assert runner.run(take()) == num_each * num_threads


def test_a_loop_that_works_is_not_written_to(runner: asyncio.Runner) -> None:
    async def work() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EdgeLoop)
        num_called = 0

        def call() -> None:
            nonlocal num_called
            num_called += 1

        def give() -> None:
            for _ in range(100):
                loop.call_soon_threadsafe(call)

        thread = threading.Thread(target=give)
        thread.start()
        # in the loop's own thread, which therefore works
        thread.join()
        num_bytes = loop.num_woken
        await asyncio.sleep(0)
        assert num_called == 100
        return num_bytes

    assert runner.run(work()) == 0
