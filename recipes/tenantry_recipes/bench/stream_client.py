"""A client for streamed answers that costs little: it shares its processors with the servers.

One connection per request, HTTP/1.1, server-sent events in a chunked body. It reads OpenAI's two
kinds of chunks, those of completions and those of chats.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import anyio
import msgspec
from anyio.abc import ByteStream

from .errors import BenchmarkError

RECEIVE_BYTES = 1 << 16

ANSWER_TIMEOUT_S = 300.0
"""For one whole answer; far more than any contender takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """A POST whose answer is a stream."""

    host: str
    port: int
    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    def encoded(self) -> bytes:
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {self.host}:{self.port}",
            "Content-Type: application/json",
            f"Content-Length: {len(self.body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedAnswer:
    """One answer; times of `time.perf_counter`."""

    sent_s: float
    text_s: tuple[float, ...]
    """When each piece of text came, reasoning included."""
    text: str
    prompt_tokens: int
    completion_tokens: int

    @property
    def first_text_s(self) -> float:
        """From the request to the first piece of text."""
        return self.text_s[0] - self.sent_s


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    text: str = ""
    delta: _Delta = _Delta()


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: object = None


_decoder = msgspec.json.Decoder(_Chunk)


async def ask(request: StreamRequest) -> StreamedAnswer:
    """Send a request and read its answer to the end; raise `BenchmarkError` if it is none."""
    with anyio.fail_after(ANSWER_TIMEOUT_S):
        async with await anyio.connect_tcp(request.host, request.port) as connection:
            sent_s = time.perf_counter()
            await connection.send(request.encoded())
            return await _read(connection, sent_s)


async def _read(connection: ByteStream, sent_s: float) -> StreamedAnswer:
    body = ChunkedBody()
    events = EventLines()
    head = bytearray()
    pieces: list[tuple[float, str]] = []
    usage: _Usage | None = None
    while not body.is_complete:
        received = await _receive(connection)
        came_s = time.perf_counter()
        if not head.endswith(b"\r\n\r\n"):
            received = _after_head(head, received)
        for record in events.feed(body.feed(received)):
            chunk = _decoder.decode(record)
            if chunk.error is not None:
                raise BenchmarkError(f"the answer is an error: {record.decode(errors='replace')}")
            usage = chunk.usage or usage
            if text := "".join(map(_text_of, chunk.choices)):
                pieces.append((came_s, text))
    if usage is None or not pieces:
        raise BenchmarkError("an answer ended without text or without its usage")
    return StreamedAnswer(
        sent_s=sent_s,
        text_s=tuple(came_s for came_s, _ in pieces),
        text="".join(text for _, text in pieces),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
    )


async def _receive(connection: ByteStream) -> bytes:
    try:
        return await connection.receive(RECEIVE_BYTES)
    except anyio.EndOfStream:
        raise BenchmarkError("the connection closed in the middle of an answer") from None


def _after_head(head: bytearray, received: bytes) -> bytes:
    """Move status line and headers to `head`; return what comes after them."""
    head += received
    end = head.find(b"\r\n\r\n")
    if end < 0:
        return b""
    rest = bytes(head[end + 4 :])
    del head[end + 4 :]
    status = head.split(b" ", 2)[1]
    if status != b"200" or b"transfer-encoding: chunked" not in head.lower():
        shown = bytes(head + rest).decode(errors="replace")
        raise BenchmarkError(f"expected a stream, got:\n{shown}")
    return rest


def _text_of(choice: _Choice) -> str:
    return choice.text + (choice.delta.content or "") + (choice.delta.reasoning or "")


class ChunkedBody:
    """Takes the chunks of RFC 9112, section 7.1, apart."""

    def __init__(self) -> None:
        self.is_complete = False
        self._pending = bytearray()

    def feed(self, received: bytes) -> bytes:
        """Return the content of all chunks that are whole by now."""
        pending = self._pending
        pending += received
        content: list[bytes] = []
        at = 0
        while (size_end := pending.find(b"\r\n", at)) >= 0:
            size = int(pending[at:size_end].partition(b";")[0], 16)
            start, end = size_end + 2, size_end + 2 + size
            if len(pending) < end + 2:
                break
            content.append(bytes(pending[start:end]))
            at = end + 2
            if size == 0:
                self.is_complete = True
                break
        del pending[:at]
        return b"".join(content)


class EventLines:
    """Finds the JSON records of server-sent events, one per `data:` line."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, content: bytes) -> list[bytes]:
        *lines, self._pending = (self._pending + content).split(b"\n")
        data = (line[5:].strip() for line in lines if line.startswith(b"data:"))
        return [record for record in data if record != b"[DONE]"]
