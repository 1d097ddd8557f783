"""Reading a request's body, up to a limit."""

from __future__ import annotations

import anyio
from starlette.requests import ClientDisconnect, Request

from tenantry_runtime.errors import BodyTooLarge, InvalidInput, RequestTimeout


async def read_body(request: Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """Read the whole body.

    Raises `BodyTooLarge` as soon as the declared length or what has arrived is over the limit,
    `RequestTimeout` for a body that does not come to its end in time, and starlette's
    `ClientDisconnect` if the client leaves.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise InvalidInput("content-encoding", f"{encoding!r} is not supported")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise BodyTooLarge(max_bytes)
    with anyio.move_on_after(timeout_s) as deadline:
        return await _collect(request, max_bytes)
    assert deadline.cancelled_caught
    raise RequestTimeout


async def _collect(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > max_bytes:
            raise BodyTooLarge(max_bytes)
        if not message.get("more_body", False):
            return bytes(body)
