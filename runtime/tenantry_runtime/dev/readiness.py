"""Waiting for the edge to say that every model is served."""

from __future__ import annotations

import http.client

import anyio
import anyio.to_thread

from .address import Address

POLL_INTERVAL_S = 0.05
ANSWER_TIMEOUT_S = 0.5
"""Also the longest that an abandoned question delays the exit after Ctrl-C."""


async def until_ready(address: Address) -> None:
    """Ask `/ready` until it says yes."""
    while True:
        if await anyio.to_thread.run_sync(_is_ready, address, abandon_on_cancel=True):
            return
        await anyio.sleep(POLL_INTERVAL_S)


def _is_ready(address: Address) -> bool:
    connection = http.client.HTTPConnection(
        address.reachable_host, address.port, timeout=ANSWER_TIMEOUT_S
    )
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
