"""The response to one request: a whole one, or a stream of server-sent events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Never

import anyio
from starlette.requests import ClientDisconnect
from starlette.types import Message, Send

from tenantry_runtime.core import Event
from tenantry_runtime.errors import TenantryError

from . import errors
from .dialects.dialect import Dialect, Printer

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: clients skip it."""

# no charset: clients of Workers AI compare the whole value
JSON = {"content-type": "application/json"}
EVENT_STREAM = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache",
    # nginx and its kin would hold events back
    "x-accel-buffering": "no",
}


class Reply:
    """Sends at most one response. A stream starts with the first thing that is written to it."""

    def __init__(
        self,
        send: Send,
        *,
        dialect: Dialect,
        headers: Mapping[str, str],
        late_headers: Callable[[], Mapping[str, str]] = dict,
        stall_timeout_s: float,
    ) -> None:
        """`late_headers` are asked for when the response starts."""
        self.status: int | None = None
        """None until the response has started."""
        self._send = send
        self._dialect = dialect
        self._headers = headers
        self._late_headers = late_headers
        self._stall_timeout_s = stall_timeout_s
        self._printer: Printer | None = None
        self._has_opened = False
        self._lock = anyio.Lock()
        self._written_s = anyio.current_time()

    async def whole(self, body: bytes) -> None:
        """Send a whole answer."""
        await self._whole(200, body, {})

    def will_stream(self, printer: Printer) -> None:
        """Make what follows a stream, also an error, if anything has been written by then."""
        self._printer = printer

    async def write(self, events: Sequence[Event], choice: int = 0) -> None:
        """Send events of one of the answers at once.

        Returns when the client's side has taken them; raises `ClientDisconnect` if it does not for
        too long.
        """
        assert self._printer is not None
        # in this order: what a printer says may depend on what it has said
        opening = b"" if self._has_opened else self._printer.opening()
        self._has_opened = True
        printed = opening + b"".join(self._printer.event(event, choice) for event in events)
        # a dialect has no place for some events
        if printed:
            await self._write(printed)

    async def keep_alive(self, interval_s: float) -> Never:
        """Write a comment whenever a stream has been silent for the interval."""
        while True:
            await anyio.sleep_until(self._written_s + interval_s)
            if anyio.current_time() >= self._written_s + interval_s:
                await self._write(KEEP_ALIVE)

    async def end(self) -> None:
        """End a stream after its last event."""
        await self._deliver({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, error: TenantryError) -> None:
        """Say why there is no answer, or no whole one."""
        if self.status is None:
            status, body = self._dialect.error(error)
            await self._whole(status, body, errors.headers(error))
        elif self._printer is not None:
            await self._write(self._printer.broken(error))
            await self.end()

    async def _whole(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        length = {"content-length": str(len(body))}
        head = self._head(status, {**JSON, **length, **headers})
        await self._deliver(head, {"type": "http.response.body", "body": body, "more_body": False})

    async def _write(self, chunk: bytes) -> None:
        body: Message = {"type": "http.response.body", "body": chunk, "more_body": True}
        async with self._lock:
            if self.status is None:
                await self._deliver(self._head(200, EVENT_STREAM), body)
            else:
                await self._deliver(body)
            self._written_s = anyio.current_time()

    async def _deliver(self, *messages: Message) -> None:
        """Raise `ClientDisconnect` if the client's side does not take them for too long."""
        with anyio.move_on_after(self._stall_timeout_s) as deadline:
            for message in messages:
                await self._send(message)
        if deadline.cancelled_caught:
            raise ClientDisconnect

    def _head(self, status: int, headers: Mapping[str, str]) -> Message:
        self.status = status
        fields = {**self._headers, **self._late_headers(), **headers}
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        return {"type": "http.response.start", "status": status, "headers": raw}
