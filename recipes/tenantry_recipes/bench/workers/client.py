"""A client that costs little: it shares its processors with the servers.

Each connection sends a request, reads its response and sends the next, until the time is over.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_recipes.bench.memory import family_of, processor_s

_END_OF_HEAD = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
PATIENCE_S = 30.0
"""After a burst is over, for what is under way."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a worker is."""

    port: int
    host: str
    """For the Host header."""
    pid: int
    """Of the server."""

    def request(self) -> bytes:
        return f"GET / HTTP/1.1\r\nHost: {self.host}\r\nAccept: */*\r\n\r\n".encode()


@dataclass(frozen=True, slots=True)
class Burst:
    """What came of a while of requests."""

    seconds: float
    latencies_s: list[float]
    """Of whole responses, least first."""
    processor_s: float
    """That the server and its children used."""

    @property
    def processor_us(self) -> float:
        """Of one request."""
        return 1e6 * self.processor_s / len(self.latencies_s)

    @property
    def per_s(self) -> float:
        return len(self.latencies_s) / self.seconds

    def quantile_ms(self, part: float) -> float:
        place = min(int(part * len(self.latencies_s)), len(self.latencies_s) - 1)
        return 1000 * self.latencies_s[place]


async def burst(target: Target, *, connections: int, seconds: float) -> Burst:
    """Ask for `seconds` over so many connections. Raises `BenchmarkError` for what is no 200."""
    loop = asyncio.get_running_loop()
    used_s = _used_s(target.pid)
    began_s = time.perf_counter()
    latencies_s: list[float] = []
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(
            lambda: _Client(target.request(), began_s + seconds, latencies_s),
            "127.0.0.1",
            target.port,
        )
        clients.append(client)
    try:
        async with asyncio.timeout(seconds + PATIENCE_S):
            for client in clients:
                await client.done
    finally:
        for client in clients:
            client.close()
    if not latencies_s:
        raise BenchmarkError(f"{target} has answered nothing")
    seconds = time.perf_counter() - began_s
    return Burst(seconds, sorted(latencies_s), _used_s(target.pid) - used_s)


def _used_s(pid: int) -> float:
    return sum(map(processor_s, family_of(pid)))


class _Client(asyncio.Protocol):
    def __init__(self, request: bytes, end_s: float, latencies_s: list[float]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._end_s = end_s
        self._latencies_s = latencies_s
        self._received = b""
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(BenchmarkError(f"the connection was lost: {error}"))

    def data_received(self, data: bytes) -> None:
        if not self._received and not data.startswith(b"HTTP/1.1 200"):
            self._fail(data)
            return
        # of a stream the beginning and the end are enough
        self._received = data if not self._received else self._received[:512] + data
        if not self._is_whole():
            return
        now_s = time.perf_counter()
        self._latencies_s.append(now_s - self._sent_s)
        self._received = b""
        if now_s < self._end_s:
            self._send()
        elif not self.done.done():
            self.done.set_result(None)

    def close(self) -> None:
        self._transport.abort()
        if self.done.done() and not self.done.cancelled():
            self.done.exception()

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)

    def _fail(self, data: bytes) -> None:
        if not self.done.done():
            self.done.set_exception(BenchmarkError(f"no 200: {data[:200]!r}"))

    def _is_whole(self) -> bool:
        head, found, body = self._received.partition(_END_OF_HEAD)
        if not found:
            return False
        lowered = head.lower()
        _, has_length, rest = lowered.partition(b"content-length: ")
        if has_length:
            return len(body) >= int(rest.partition(b"\r")[0])
        return body.endswith(_LAST_CHUNK)
