"""What becomes of the headers of a worker's request and response that HTTP treats by rules of their own."""

from __future__ import annotations

import anyio
import pytest

from support.worker_routes import a_routed_edge, answering
from tenantry_runtime.workers.interface import HttpRequest, HttpResponse, Invocation

pytestmark = pytest.mark.asyncio
PATIENCE_S = 30.0


@pytest.mark.parametrize(
    ("declared", "body", "told"),
    [("1234", b"", b"1234"), (None, b"hello", b"5"), (None, b"", b"0")],
)
async def test_head_is_told_how_long_the_body_would_be(
    declared: str | None, body: bytes, told: bytes
) -> None:
    async def handler(_: HttpRequest, __: Invocation) -> HttpResponse:
        headers = [] if declared is None else [("content-length", declared)]
        return HttpResponse(status=200, headers=headers, body=body)

    request = b"HEAD / HTTP/1.1\r\nhost: hello.acme.localhost\r\nconnection: close\r\n\r\n"
    answer = b""
    async with a_routed_edge(handler) as edge:
        async with await anyio.connect_tcp("127.0.0.1", edge.port) as client:
            await client.send(request)
            async for piece in client:
                answer += piece
    assert b"\r\ncontent-length: %b\r\n" % told in answer.lower()
    assert answer.endswith(b"\r\n\r\n")


def a_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """RFC 9113, section 4.1."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def a_literal(name: bytes, value: bytes) -> bytes:
    """A field that is in no table: RFC 7541, section 6.2.2."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


async def test_a_cookie_that_http_2_brings_in_parts_is_one_cookie() -> None:
    fields = [
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":path", b"/"),
        (b":authority", b"hello.acme.localhost"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
    ]
    block = b"".join(a_literal(*field) for field in fields)
    settings, headers = a_frame(4, 0, 0), a_frame(1, 5, 1, block)
    async with a_routed_edge(answering()) as edge:
        async with await anyio.connect_tcp("127.0.0.1", edge.port) as client:
            await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + headers)
            with anyio.fail_after(PATIENCE_S):
                while not edge.engine.requests:
                    await client.receive()
    ((_, request, _),) = edge.engine.requests
    # RFC 9113, section 8.2.3
    assert [value for name, value in request.headers if name == "cookie"] == ["a=1; b=2"]
