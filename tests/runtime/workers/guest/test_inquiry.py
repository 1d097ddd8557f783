"""A guest that is asked by a signal says where it is, and gives back what has not begun."""

from __future__ import annotations

import os

import pytest

from support.guests import Guests, RawRuntime
from tenantry_runtime.workers.frames import (
    Busy,
    Fetch,
    File,
    Finished,
    FromIsolate,
    Load,
    Loaded,
    Log,
    Resume,
)
from tenantry_runtime.workers.guest.inquiry import ASKED

# the line that is to be named is the eighth
CODE = """
import os, time
from workers import Response, WorkerEntrypoint
print(os.getpid()); told = []
class Default(WorkerEntrypoint):
    async def fetch(self, request):
        if request.url.endswith("/bad"):
            {line}
        return Response("")
"""
KEPT_BY = {
    "a loop": "while time.process_time() < 0.5: told or told.append(print('begun'))",
    "a sleep": "time.sleep(0.5 if print('begun') is None else 0)",
    "a loop that prints": "while time.process_time() < 0.5: print('begun')",
}


def a_fetch(number: int, path: str) -> Fetch:
    return Fetch(number, "", "GET", f"http://w{path}", [])


def until(runtime: RawRuntime, kind: type[FromIsolate]) -> FromIsolate:
    while not isinstance(frame := runtime.receive(), kind):
        pass
    return frame


@pytest.mark.parametrize("name", KEPT_BY)
def test_the_line_is_named_and_what_has_not_begun_never_does(guests: Guests, name: str) -> None:
    with RawRuntime(guests.spawn()) as runtime:
        code = CODE.format(line=KEPT_BY[name]).encode()
        runtime.send(File("entry.py", code), Load("entry.py", []))
        line = until(runtime, Log)
        assert isinstance(line, Log)
        until(runtime, Loaded)
        runtime.send(a_fetch(1, "/bad"), a_fetch(2, "/good"))
        until(runtime, Log)
        runtime.send(a_fetch(3, "/good"))
        os.kill(int(line.text), ASKED)
        said: list[FromIsolate] = [runtime.receive()]
        while not isinstance(said[-1], Busy):
            said.append(runtime.receive())
        runtime.send(Resume(), a_fetch(4, "/good"))
        while Finished(4) not in said:
            said.append(runtime.receive())
    assert Busy(1, "entry.py", 8, 2, [2]) in said
    assert [each for each in said if isinstance(each, Finished)] == [Finished(1), Finished(4)]


def test_a_guest_that_only_waits_says_nothing(guests: Guests) -> None:
    with RawRuntime(guests.spawn()) as runtime:
        code = CODE.format(line="pass").encode()
        runtime.send(File("entry.py", code), Load("entry.py", []))
        line = until(runtime, Log)
        assert isinstance(line, Log)
        until(runtime, Loaded)
        os.kill(int(line.text), ASKED)
        runtime.send(a_fetch(1, "/good"))
        assert until(runtime, Finished) == Finished(1)
