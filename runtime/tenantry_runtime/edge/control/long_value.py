"""Long values on their way out: as many in memory as there may be uploads, each at its client's pace."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE_BYTES = 64 << 10
STALL_S = 60.0
"""A client that takes nothing for so long is given up."""


class LongValue(Response):
    """Sends bytes in pieces, and closes what they hold when it is over."""

    def __init__(self, value: bytes, headers: Mapping[str, str], held: AsyncExitStack) -> None:
        super().__init__(headers={**headers, "content-length": str(len(value))})
        self._value = value
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            for at in range(0, len(self._value), PIECE_BYTES):
                piece = self._value[at : at + PIECE_BYTES]
                with anyio.move_on_after(STALL_S) as patience:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                if patience.cancelled_caught:
                    # without its last piece, which the client sees as broken off
                    return
            await send({"type": "http.response.body", "body": b"", "more_body": False})
