"""Requests that a worker sends, out or to a worker that it is bound to."""

from __future__ import annotations

from typing import Any, Unpack

from ._abort import until_aborted
from ._body import host_body
from ._host import INLINE_BYTES, Body, Host, HostResponse, current
from ._request import FetchKwargs, Request
from ._response import Response

OUTBOUND = "FETCH"
"""The binding that every worker has."""


async def fetch(resource: Request | str, **options: Unpack[FetchKwargs]) -> Response:
    """Send a request out, by the runtime, which says where this worker may go.

    Returns as soon as the response's headers are there. Raises `OSError`: the host cannot be reached,
    or may not be (`PermissionError`).
    """
    request = Request(resource, **options)
    return await send(current().host, OUTBOUND, request, {"redirect": request.redirect})


async def send(host: Host, binding: str, request: Request, *options: dict[str, Any]) -> Response:
    """Send a request to a binding."""
    body: Body = host_body(request.take_body())
    inline: bytes | None = None
    if isinstance(body, bytes) and len(body) <= INLINE_BYTES:
        inline, body = body, None
    args: list[Any] = [
        str(request.method),
        request.url,
        [list(pair) for pair in request.headers.raw_items()],
        inline,
        *options,
    ]
    answer = await until_aborted(host.call(binding, "fetch", args, body), request.own_signal)
    if not isinstance(answer, HostResponse):
        raise TypeError(f"{binding}.fetch answered with a {type(answer).__name__}, not a response")
    return Response.received(answer)
