"""Clients of an edge who remember exactly what they were sent, over sockets of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, and how its client behaves."""

    trace_id: str
    """By which its record is found."""
    account: str
    token: str
    model: str
    prompt: str
    max_tokens: int
    thinking: bool = False
    stop: str | None = None
    stream: bool = True
    leaves_after: int | None = None
    """Bytes of the response after which it hangs up; None: it stays."""

    def printed(self) -> bytes:
        fields: dict[str, Any] = {
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "stream": self.stream,
            "temperature": 0,
            "chat_template_kwargs": {"thinking": self.thinking},
        }
        if self.stop is not None:
            fields["stop"] = self.stop
        body = json.dumps(fields)
        return (
            f"POST /client/v4/accounts/{self.account}/ai/run/{self.model} HTTP/1.1\r\n"
            f"host: edge\r\nconnection: close\r\nauthorization: Bearer {self.token}\r\n"
            f"traceparent: 00-{self.trace_id}-{'1' * 16}-01\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
        ).encode()


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one client has seen of its request."""

    ask: Ask
    was_sent: bool = False
    """Whether an edge has taken the connection."""
    status: int | None = None
    request_id: str | None = None
    text: str = ""
    error: str | None = None
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    is_whole: bool = False
    has_left: bool = False

    @property
    def has_text(self) -> bool:
        return bool(self.text)


@dataclass(slots=True)
class _Response:
    """Takes a response apart as it comes."""

    seen: Seen
    pending: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def take(self, more: bytes) -> None:
        self.pending += more
        if self.seen.status is None and not self._take_head():
            return
        if self.headers.get("transfer-encoding") == "chunked":
            self._take_chunks()
        else:
            self.body += self.pending
            self.pending = b""
        if self.headers["content-type"] == "text/event-stream":
            self._take_events()

    def end(self) -> None:
        """The connection is closed."""
        length = int(self.headers.get("content-length", -1))
        if len(self.body) == length:
            self._take_whole(json.loads(self.body))

    def _take_head(self) -> bool:
        head, mark, rest = self.pending.partition(b"\r\n\r\n")
        if not mark:
            return False
        status, *lines = head.decode().split("\r\n")
        self.headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        self.seen.status = int(status.split()[1])
        self.seen.request_id = self.headers.get("cf-ai-req-id")
        self.pending = rest
        return True

    def _take_chunks(self) -> None:
        while b"\r\n" in self.pending:
            size, _, rest = self.pending.partition(b"\r\n")
            length = int(size, 16)
            if len(rest) < length + 2:
                # a part of a chunk has been seen too
                return
            self.body += rest[:length]
            self.pending = rest[length + 2 :]

    def _take_events(self) -> None:
        while b"\n\n" in self.body:
            event, _, self.body = self.body.partition(b"\n\n")
            data = event.removeprefix(b"data: ")
            if data == b"[DONE]":
                self.seen.is_whole = True
            elif data != event:
                self._take_event(json.loads(data))

    def _take_event(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self.seen.error = event["error"]["message"]
            return
        self.seen.usage = event.get("usage") or self.seen.usage
        for choice in event["choices"]:
            self.seen.finish_reason = choice["finish_reason"]
            delta = choice["delta"]
            self.seen.text += (delta.get("reasoning_content") or "") + (delta.get("content") or "")

    def _take_whole(self, printed: dict[str, Any]) -> None:
        if not printed["success"]:
            self.seen.error = printed["errors"][0]["message"]
            return
        result = printed["result"]
        [choice] = result["choices"]
        message = choice["message"]
        self.seen.text = (message.get("reasoning_content") or "") + (message["content"] or "")
        self.seen.finish_reason = choice["finish_reason"]
        self.seen.usage = result["usage"]
        self.seen.is_whole = True


async def ask(port: int, asked: Ask) -> Seen:
    """Send a request to an edge, and return what has come of it; edges may die meanwhile."""
    seen = Seen(ask=asked)
    response = _Response(seen)
    try:
        with anyio.fail_after(PATIENCE_S):
            async with await anyio.connect_tcp("127.0.0.1", port) as connection:
                await connection.send(asked.printed())
                seen.was_sent = True
                num_bytes = 0
                async for more in _received(connection):
                    num_bytes += len(more)
                    response.take(more)
                    if asked.leaves_after is not None and num_bytes >= asked.leaves_after:
                        seen.has_left = not seen.is_whole
                        return seen
        response.end()
    except (OSError, anyio.BrokenResourceError):
        pass
    return seen


async def _received(connection: anyio.abc.ByteReceiveStream) -> AsyncIterator[bytes]:
    while True:
        try:
            yield await connection.receive()
        except anyio.EndOfStream:
            return
