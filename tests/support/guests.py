"""Real guests without their sandbox, and what a test wants to know of their invocations."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import msgspec
import pytest

from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.frames import FromIsolate
from tenantry_runtime.workers.guest.wire import HEADER, append_frame
from tenantry_runtime.workers.interface import (
    ByteStream,
    ErrorLine,
    HttpRequest,
    Invocation,
    LogLine,
)
from tenantry_runtime.workers.isolate import Isolate, IsolateLimits, open_isolate
from tenantry_runtime.workers.spec import Binding, WorkerLimits, WorkerVersion

FORKS = Path(__file__).parent / "guest_forks.py"

Answer = Callable[..., Awaitable[object]]


class Guests:
    """Forks guests of one preloaded process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def spawn(self, *, is_hasty: bool = False) -> socket.socket:
        """Return the runtime's end of a blank guest's stream."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"h" if is_hasty else b"n"], [theirs.fileno()])
        return ours


@pytest.fixture(scope="session")
def guests() -> Iterator[Guests]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(FORKS), str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        with ours:
            yield Guests(ours)
        process.wait(10)


class RawRuntime:
    """The runtime's end of a guest's stream, frame by frame."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(20)

    def __enter__(self) -> RawRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, *frames: object) -> None:
        """Send frames in one write."""
        out = bytearray()
        for frame in frames:
            append_frame(out, frame)
        self._connection.sendall(out)

    def receive(self) -> FromIsolate:
        """Return the next frame."""
        (num_bytes,) = HEADER.unpack(self._read(HEADER.size))
        return msgspec.msgpack.decode(self._read(num_bytes), type=FromIsolate)

    def _read(self, num_bytes: int) -> bytes:
        content = b""
        while len(content) < num_bytes:
            piece = self._connection.recv(num_bytes - len(content))
            assert piece, "the guest closed its stream"
            content += piece
        return content


@dataclass(eq=False)
class Heard:
    """An `Attendant` that remembers, and answers calls by a function."""

    answer: Answer | None = None
    lines: list[LogLine] = field(default_factory=list)
    errors: list[ErrorLine] = field(default_factory=list)
    places: list[tuple[str, int]] = field(default_factory=list)
    num_finished: int = 0
    has_finished: anyio.Event = field(default_factory=anyio.Event)
    _news: anyio.Event = field(default_factory=anyio.Event)

    async def call(
        self, binding: str, method: str, args: Sequence[Any], body: ByteStream | None
    ) -> object:
        assert self.answer is not None, f"{binding}.{method} was called"
        return await self.answer(binding, method, args, body)

    def log(self, line: LogLine) -> None:
        self.lines.append(line)
        self._tell()

    def failed(self, error: ErrorLine) -> None:
        self.errors.append(error)
        self._tell()

    def never_ends(self, path: str, line: int) -> None:
        self.places.append((path, line))
        self._tell()

    def finished(self) -> None:
        self.num_finished += 1
        self.has_finished.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is true that hearing can make so."""
        while not holds():
            self._news = anyio.Event()
            await self._news.wait()

    async def line(self, text: str) -> LogLine:
        """Wait for a line."""
        await self.until(lambda: any(line.text == text for line in self.lines))
        return next(line for line in self.lines if line.text == text)

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    def _tell(self) -> None:
        self._news.set()


def a_version(
    bindings: Sequence[Binding] = (), main_module: str = "entry.py", **limits: Any
) -> WorkerVersion:
    return WorkerVersion(
        tenant=TenantId("tenant"),
        worker="worker",
        version_id="version",
        number=1,
        main_module=main_module,
        files=(),
        bindings=tuple(bindings),
        limits=WorkerLimits(**limits),
    )


def a_request(path: str = "/", body: bytes | ByteStream | None = None) -> HttpRequest:
    return HttpRequest(method="GET" if body is None else "POST", url=f"http://w{path}", body=body)


def an_invocation(entrypoint: str = "") -> Invocation:
    return Invocation(id="7d2f0f55-6d3b-4b8b-9c3e-1f0a5c0f8a11", entrypoint=entrypoint)


@asynccontextmanager
async def a_worker(
    guests: Guests,
    code: str,
    *,
    files: Mapping[str, bytes] | None = None,
    bindings: Sequence[Binding] = (),
    values: Mapping[str, object] | None = None,
    outside: Heard | None = None,
    isolate_limits: IsolateLimits | None = None,
    is_hasty: bool = False,
    **limits: Any,
) -> AsyncIterator[Isolate]:
    """Load a worker, whose main module is `entry.py`, into a guest."""
    bundle = {**(files or {}), "entry.py": dedent(code).encode()}
    async with open_isolate(
        guests.spawn(is_hasty=is_hasty),
        outside=outside or Heard(),
        limits=isolate_limits or IsolateLimits(),
    ) as isolate:
        with anyio.fail_after(20):
            await isolate.load(a_version(bindings, **limits), bundle.items(), values or {})
            yield isolate


async def fetched(isolate: Isolate, path: str = "/", heard: Heard | None = None) -> bytes:
    """Fetch to the end of the body, and of the invocation."""
    heard = heard or Heard()
    async with isolate.fetch(a_request(path), an_invocation(), heard) as response:
        body = await whole(response.body)
    await heard.has_finished.wait()
    return body


async def whole(body: bytes | ByteStream) -> bytes:
    """Return all of a body."""
    return body if isinstance(body, bytes) else b"".join([piece async for piece in body])
