"""The guest of isolates, rehearsed: most of what a first request would touch has been touched before.

Runs in templates and isolates, as a module of its own, beside `tenantry_runtime.workers.guest`.

A fork shares its parent's memory until it writes; each page that it writes first is copied, which takes
microseconds and is private from then on, and a first request writes hundreds: counters of references
lie in the objects, code that runs for the first times rewrites itself, and new objects fill the gaps
between old ones. So before it is forked a template

- moves the code that will run to one place, out from among the code that will not;
- plays a short worker's life over and over, until the code has become what it stays;
- fills the gaps, so that new objects of its isolates lie together.

And an isolate that nobody wants yet plays that life once, which takes the copying off the way of the
request that it will be given.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import select
import socket
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tenantry_runtime.workers import guest
from tenantry_runtime.workers.frames import BindingValue, Drain, Fetch, File, Load
from tenantry_runtime.workers.guest.bundle import ROOT
from tenantry_runtime.workers.guest.process import prepared
from tenantry_runtime.workers.guest.wire import append_frame

NUM_LIVES = 12
"""In the template: after some eight runs a function's code is as it stays."""
NUM_REQUESTS = 3
"""In each life."""
WAIT_MS = 20
"""Whoever forks an isolate for a request sends its version at once: then there is no time to rehearse."""

_PATH = "rehearsal.py"
_CODE = b"""
from tenantry.workers import Response, WorkerEntrypoint

class Default(WorkerEntrypoint):
    async def fetch(self, request):
        print(request.method, request.url, request.headers.get("accept"))
        self.env.AI
        if request.url.endswith("1"):
            return Response.json({"a": [1, "b"]})
        return Response("hello", headers={"content-type": "text/plain"})
"""
_FORKING = ("_sandbox.", "threading")
"""Modules whose code runs in a fork before the guest's."""
_FILLING: list[object] = []
"""What fills the gaps."""


def preload() -> None:
    """Import what isolates need, and rehearse, in the template."""
    guest.preload()
    rehearse()
    executed = _codes_of(rehearse)
    _fill_gaps()
    _move_together(executed)
    for _ in range(NUM_LIVES):
        rehearse()
    _fill_gaps()


def prepare(connection: socket.socket) -> Callable[[], NoReturn]:
    """Make ready what rehearses if there is time, and then serves the runtime."""
    serve_runtime = guest.prepare(connection)

    def serve() -> NoReturn:
        waiting = select.poll()
        waiting.register(connection, select.POLLIN)
        if not waiting.poll(WAIT_MS):
            rehearse()
        serve_runtime()

    return serve


def rehearse() -> None:
    """Live a worker's life to its end, and leave nothing of it behind."""
    script = bytearray()
    append_frame(script, File(_PATH, _CODE))
    append_frame(script, Load(_PATH, [BindingValue("AI", "ai"), BindingValue("V", "value", "v")]))
    headers = [("host", "localhost"), ("accept", "*/*")]
    for number in range(1, NUM_REQUESTS + 1):
        url = f"http://localhost/{number}"
        append_frame(script, Fetch(number, "", "GET", url, headers, seconds_left=1.0))
    append_frame(script, Drain())
    mine, theirs = socket.socketpair()
    with mine, theirs, _put_back():
        mine.sendall(script)
        prepared(theirs)()


@contextmanager
def _put_back() -> Iterator[None]:
    """Restore what a worker's life changes in its process."""
    num_modules = len(sys.modules)
    # Any: what is in them does not matter
    found: tuple[list[Any], ...] = (sys.path, sys.meta_path, sys.path_hooks)
    lists = [(each, each[:]) for each in found]
    places = [
        (sys, "stdout"),
        (sys, "stderr"),
        (logging, "lastResort"),
        (logging.StreamHandler, "emit"),
        (warnings, "showwarning"),
    ]
    values = [getattr(owner, name) for owner, name in places]
    try:
        yield
    finally:
        # the last are those that came since; to look at all would write to each name
        while len(sys.modules) > num_modules:
            sys.modules.popitem()
        for now, before in lists:
            now[:] = before
        for path in [path for path in sys.path_importer_cache if path.startswith(ROOT)]:
            del sys.path_importer_cache[path]
        for (owner, name), value in zip(places, values, strict=True):
            setattr(owner, name, value)


def _codes_of(function: Callable[[], None]) -> set[types.CodeType]:
    """Return the code that a function runs."""
    executed: set[types.CodeType] = set()
    sys.setprofile(lambda frame, event, _: executed.add(frame.f_code) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return executed


def _move_together(executed: set[types.CodeType]) -> None:
    """Give functions whose code runs in isolates copies of it, which lie in one place."""
    copies: dict[types.CodeType, types.CodeType] = {}
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and (
            function.__code__ in executed or str(function.__module__).startswith(_FORKING)
        ):
            function.__code__ = _copy(function.__code__, copies)
    # what they took the place of is a gap no more than they are
    _FILLING.append(copies)


def _copy(code: types.CodeType, copies: dict[types.CodeType, types.CodeType]) -> types.CodeType:
    if code not in copies:
        constants = tuple(
            _copy(each, copies) if isinstance(each, types.CodeType) else each
            for each in code.co_consts
        )
        copies[code] = code.replace(co_consts=constants)
    return copies[code]


def _fill_gaps() -> None:
    """Take every free place between objects, of each size that the allocator has."""
    gc.collect()
    for num_bytes, num_free in _free_places().items():
        _FILLING.append([_object_of(num_bytes) for _ in range(num_free)])


def _free_places() -> dict[int, int]:
    """Return how many objects fit between others, by their size in bytes, largest first."""
    # a table on the standard error output: class, size, pools, blocks in use, blocks free
    reading, writing = os.pipe()
    saved = os.dup(2)
    os.dup2(writing, 2)
    try:
        sys._debugmallocstats()
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(writing)
    with open(reading, encoding="ascii") as table:
        rows = re.findall(r"^ *\d+ +(\d+) +\d+ +\d+ +(\d+) *$", table.read(), re.MULTILINE)
    return {int(num_bytes): int(num_free) for num_bytes, num_free in reversed(rows)}


def _object_of(num_bytes: int) -> object:
    if num_bytes < 48:
        return object() if num_bytes == 16 else float(num_bytes)
    return bytes(bytearray(num_bytes - sys.getsizeof(b"")))
