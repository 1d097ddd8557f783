"""Where what a worker prints and logs goes."""

from __future__ import annotations

import anyio
import pytest

from support.guests import Guests, Heard, a_request, a_worker, an_invocation, fetched
from tenantry_runtime.workers.frames import MAX_LOG_BYTES
from tenantry_runtime.workers.isolate import EndingKind, IsolateEnded

HEAD = (
    "import asyncio, logging, sys, threading, warnings\n"
    "from workers import Response, WorkerEntrypoint\n"
)


async def lines_of(guests: Guests, *statements: str) -> list[tuple[str, str]]:
    """Return levels and texts of the lines that a handler's statements log."""
    handler = "".join(f"    {statement}\n" for statement in statements)
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        f"  async def fetch(self, request):\n{handler}    return Response('')\n"
    )
    outside, heard = Heard(), Heard()
    async with a_worker(guests, code, outside=outside) as isolate:
        await fetched(isolate, heard=heard)
    assert outside.lines == []
    return [(line.level, line.text) for line in heard.lines]


@pytest.mark.asyncio
async def test_each_way_to_say_something_has_its_level(guests: Guests) -> None:
    lines = await lines_of(
        guests,
        "print('printed')",
        "print('wrong', file=sys.stderr)",
        "logging.warning('careful %d', 1)",
        "logging.getLogger('mine').error('broken')",
        "warnings.warn_explicit('old', UserWarning, 'f.py', 7)",
    )
    assert lines == [
        ("log", "printed"),
        ("error", "wrong"),
        ("warn", "WARNING:root:careful 1"),
        ("error", "ERROR:mine:broken"),
        ("warn", "f.py:7: UserWarning: old"),
    ]


@pytest.mark.asyncio
async def test_a_workers_own_logging_keeps_levels_and_lines_together(guests: Guests) -> None:
    lines = await lines_of(
        guests,
        "logging.basicConfig(level=logging.DEBUG, format='%(name)s: %(message)s')",
        "logging.getLogger('mine').debug('two\\nlines')",
        "logging.getLogger('mine').info('one')",
    )
    assert lines == [("debug", "mine: two\nlines"), ("info", "mine: one")]


@pytest.mark.asyncio
async def test_half_a_line_waits_for_the_other_half_or_the_end(guests: Guests) -> None:
    lines = await lines_of(
        guests, "print('a', end='')", "print('b')", "print('c', end='', flush=True)"
    )
    assert lines == [("log", "ab"), ("log", "c")]


@pytest.mark.asyncio
async def test_a_line_that_is_too_long_comes_in_pieces(guests: Guests) -> None:
    lines = await lines_of(guests, f"print('x' * {2 * MAX_LOG_BYTES} + 'end')")
    assert lines == [("log", "x" * MAX_LOG_BYTES)] * 2 + [("log", "end")]


@pytest.mark.asyncio
async def test_text_that_is_no_text_is_replaced(guests: Guests) -> None:
    assert await lines_of(guests, "print('a' + chr(0xD800) + 'b')") == [("log", "a?b")]


@pytest.mark.asyncio
async def test_threads_log_for_the_invocation_that_started_them(guests: Guests) -> None:
    assert await lines_of(guests, "await asyncio.to_thread(print, 'aside')") == [("log", "aside")]


@pytest.mark.asyncio
async def test_lines_over_the_limit_are_counted(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    for n in range(10): print(n)\n"
        "    return Response('')\n"
    )
    heard = Heard()
    async with a_worker(guests, code, log_lines=4) as isolate:
        await fetched(isolate, heard=heard)
    assert heard.texts[:4] == ["0", "1", "2", "3"]
    assert [line.num_dropped for line in heard.lines] == [0, 0, 0, 0, 6]


@pytest.mark.asyncio
async def test_what_a_task_raised_is_in_its_invocations_log(guests: Guests) -> None:
    lines = await lines_of(
        guests,
        "async def fail(): raise LookupError('lost')",
        "asyncio.create_task(fail())",
        "await asyncio.sleep(0)",
        "await asyncio.sleep(0)",
    )
    assert [level for level, _ in lines] == ["error"]
    assert lines[0][1].endswith("LookupError: lost")
    assert 'File "entry.py", line 5, in fail' in lines[0][1]


@pytest.mark.asyncio
async def test_requests_at_the_same_time_have_logs_of_their_own(guests: Guests) -> None:
    code = HEAD + (
        "both = asyncio.Barrier(2)\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    print('begin', end=' ')\n"
        "    await both.wait()\n"
        "    print(request.url)\n"
        "    return Response('')\n"
    )
    first, second = Heard(), Heard()
    async with a_worker(guests, code) as isolate, anyio.create_task_group() as group:
        group.start_soon(fetched, isolate, "/a", first)
        group.start_soon(fetched, isolate, "/b", second)
    assert (first.texts, second.texts) == (["begin http://w/a"], ["begin http://w/b"])


@pytest.mark.asyncio
async def test_the_last_words_before_a_crash_are_kept(guests: Guests) -> None:
    code = HEAD + (
        "import os\n"
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    print('last words')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        with pytest.raises(IsolateEnded) as raised:
            async with isolate.fetch(a_request(), an_invocation(), heard):
                raise AssertionError("it answered")
        assert raised.value.ending.kind is EndingKind.CLOSED
    assert heard.texts == ["last words"]
    assert heard.num_finished == 1


@pytest.mark.asyncio
async def test_a_worker_that_logs_without_end_goes_on(guests: Guests) -> None:
    code = HEAD + (
        "class Default(WorkerEntrypoint):\n"
        "  async def fetch(self, request):\n"
        "    for n in range(50_000): print(n)\n"
        "    return Response('done')\n"
    )
    heard = Heard()
    async with a_worker(guests, code) as isolate:
        assert await fetched(isolate, heard=heard) == b"done"
    assert len(heard.lines) == 257
    assert heard.lines[-1].num_dropped == 50_000 - 256
