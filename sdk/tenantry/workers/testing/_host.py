"""The host of a worker that runs in a test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from tenantry.workers._host import Body, HostResponse, is_stream


class LogLine(NamedTuple):
    """What a worker's log would have."""

    level: str
    text: str


class Fake(Protocol):
    """Answers the calls of a binding."""

    kind: str
    """`ai`, `kv` or `service`."""

    async def answer(self, method: str, args: list[Any], body: Body) -> object:
        """Answer a call, as `Host.call` does; what it raises is raised in the worker."""
        ...


class InProcessHost:
    """Gives calls to fakes, by way of what would be on the wire."""

    def __init__(self, fakes: Mapping[str, Fake]) -> None:
        self._fakes = fakes
        self.logs: list[LogLine] = []

    async def call(self, binding: str, method: str, args: list[Any], body: Body = None) -> object:
        """Call a fake."""
        answer = await self._fakes[binding].answer(method, as_received(args), body)
        if isinstance(answer, HostResponse) or is_stream(answer):
            return answer
        return as_received(answer)

    def log(self, level: str, text: str) -> None:
        """Keep lines."""
        self.logs += [LogLine(level, line) for line in text.split("\n")]


class FakeStream:
    """A host's stream: its bytes come if they are asked for, which is then known."""

    def __init__(self, pieces: AsyncIterator[bytes], content_type: str = "") -> None:
        self.content_type = content_type
        self.is_read = False
        self._pieces = pieces

    content_type: str
    is_read: bool
    """Whether the worker asked for any of it."""

    def __aiter__(self) -> FakeStream:
        return self

    async def __anext__(self) -> bytes:
        self.is_read = True
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """End what it reads from."""
        if aclose := getattr(self._pieces, "aclose", None):
            await aclose()

    def hand_on(self) -> AsyncIterator[bytes]:
        """Give up what it reads from, for others than the worker."""
        return self._pieces


def as_received(value: Any) -> Any:
    """Copy a value as its receiver would have it. Raises `TypeError` for what cannot be sent."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


async def read_body(body: Body) -> bytes:
    """Read a body to its end."""
    if body is None or isinstance(body, bytes):
        return body or b""
    return b"".join([piece async for piece in body])
