"""One request at an ASGI application of this process, without a socket between.

| who | does what | and waits |
|---|---|---|
| the application's task | appends what it sends | while `MAX_WAITING_BYTES` are unread |
| whoever reads | takes all that has come, as one piece | while nothing has |

A reader has a piece when it is sent, unless it had one less than `PAUSE_S` ago: of an application that
sends so fast it gets fewer and longer ones, which cost it, and all who carry them on, as much less. A
reader that leaves is a client that has gone.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from math import inf

import anyio
from starlette.types import ASGIApp, Message, Scope

from tenantry_runtime.errors import GenerationFailed, NodeUnavailable, TenantryError

MAX_WAITING_BYTES = 64 << 10
"""Less than a socket's own buffers, which are not there."""
PAUSE_S = 0.001
"""Nobody sees so little, and at a thousand pieces a second a reader spends less than a hundredth of it."""

_log = logging.getLogger(__name__)


class Exchange:
    """A request, and its response while it comes. `run` it in a task; one other may read."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self.status = 0
        """Once `begun` returns."""
        self.headers: list[tuple[str, str]] = []
        self._app = app
        self._scope = scope
        self._request: bytes | None = body
        self._pieces: list[bytes] = []
        self._num_waiting = 0
        self._read_s = -inf
        self._problem: TenantryError | None = None
        self._has_begun = anyio.Event()
        self._has_more = anyio.Event()
        self._has_room = anyio.Event()
        self._is_left = anyio.Event()
        self._is_whole = False
        self._has_ended = False

    async def run(self) -> None:
        """Run the application to its end. What it raises on purpose is what `begun` raises."""
        try:
            await self._app(self._scope, self._receive, self._send)
        except TenantryError as error:
            self._problem = error
        except Exception:
            # a bug is an answer too: others' requests run in the same task group
            _log.exception("a request from inside failed")
            self._problem = GenerationFailed("internal error")
        finally:
            self._has_ended = True
            self._has_begun.set()
            self._has_more.set()

    async def begun(self) -> None:
        """Return when status and headers are there. Raises the error that came instead."""
        await self._has_begun.wait()
        if not self.status:
            raise self._problem or _cut_off()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """Return what has come; raise `NodeUnavailable` where the response ends before it is whole."""
        while not self._pieces:
            if self._is_whole:
                raise StopAsyncIteration
            if self._has_ended or self._is_left.is_set():
                raise self._problem or _cut_off()
            self._has_more = anyio.Event()
            await self._has_more.wait()
        pause_s = self._read_s + PAUSE_S - anyio.current_time()
        if pause_s > 0 and not self._is_whole and self._num_waiting < MAX_WAITING_BYTES:
            await anyio.sleep(pause_s)
        self._read_s = anyio.current_time()
        pieces, self._pieces, self._num_waiting = self._pieces, [], 0
        self._has_room.set()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read(self) -> bytes:
        """Return the whole of a body that is left."""
        return b"".join([piece async for piece in self])

    async def aclose(self) -> None:
        """Leave: the application hears that its client has gone, and what it sends is lost."""
        self.leave()

    def leave(self) -> None:
        """Do as `aclose` does."""
        self._is_left.set()
        self._has_room.set()
        self._has_more.set()

    async def _receive(self) -> Message:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
            ]
            return
        piece: bytes = message.get("body", b"")
        if piece and not self._is_left.is_set():
            self._pieces.append(piece)
            self._num_waiting += len(piece)
        self._is_whole = not message.get("more_body", False)
        # with the first of the body, so that what is whole at once is read without another wait
        self._has_begun.set()
        self._has_more.set()
        while self._num_waiting >= MAX_WAITING_BYTES and not self._is_left.is_set():
            self._has_room = anyio.Event()
            await self._has_room.wait()


def _cut_off() -> NodeUnavailable:
    return NodeUnavailable("any model: this edge ends")
