"""A web of a test's own: names, what they lead to, and servers on loopback that say what they are told."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpcore
from anyio.abc import ByteStream, TaskStatus
from anyio.streams.tls import TLSListener

from support.bindings import INVOCATION, TENANT, a_version
from tenantry_runtime.core import TenantId
from tenantry_runtime.workers.bindings.outbound.client import OutboundClient, open_outbound
from tenantry_runtime.workers.bindings.outbound.config import OutboundConfig
from tenantry_runtime.workers.interface import CallContext, HttpResponse

LOOPBACK = ("127.0.0.1/32",)
"""`networks` of tests whose servers are on loopback; 127.0.0.2 is loopback too, and not among them."""

Respond = Callable[["Heard", ByteStream], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Heard:
    """A request as it came over the wire."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    """Which of the server's, counted from 1."""

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]


@dataclass(slots=True)
class Server:
    port: int
    heard: list[Heard] = field(default_factory=list)
    num_connections: int = 0


def answering(
    body: bytes = b"hello", *, status: str = "200 OK", headers: Iterable[tuple[str, str]] = ()
) -> Respond:
    """Answer every request with the same."""
    fields = [("content-length", str(len(body))), *headers]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)

    async def respond(_: Heard, stream: ByteStream) -> None:
        await stream.send(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)

    return respond


def redirecting(location: str, status: int = 302) -> Respond:
    return answering(b"", status=f"{status} Elsewhere", headers=[("location", location)])


@asynccontextmanager
async def a_server(respond: Respond, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve on loopback, one request after the other on each connection."""
    tcp = await anyio.create_tcp_listener(local_host="127.0.0.1")
    [listener] = tcp.listeners
    server = Server(listener.extra(anyio.abc.SocketAttribute.local_port))

    async def serve(stream: ByteStream) -> None:
        server.num_connections += 1
        number = server.num_connections
        async with stream:
            try:
                while True:
                    heard = await _read(stream, number)
                    server.heard.append(heard)
                    await respond(heard, stream)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                # the client has what it wants
                pass

    async def listen(*, task_status: TaskStatus[None]) -> None:
        task_status.started()
        if tls is None:
            await tcp.serve(serve)
        else:
            await TLSListener(tcp, tls, standard_compatible=False).serve(serve)

    async with tcp, anyio.create_task_group() as tasks:
        await tasks.start(listen)
        yield server
        tasks.cancel_scope.cancel()


async def _read(stream: ByteStream, number: int) -> Heard:
    read = b""
    while b"\r\n\r\n" not in read:
        read += await stream.receive()
    head, _, body = read.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(line.partition(": ")[0].lower(), line.partition(": ")[2]) for line in lines]
    known = dict(headers)
    while len(body) < int(known.get("content-length", "0")):
        body += await stream.receive()
    if known.get("transfer-encoding") == "chunked":
        while not body.endswith(b"0\r\n\r\n"):
            body += await stream.receive()
    return Heard(method=method, target=target, headers=headers, body=body, connection=number)


class Names:
    """A resolver. Where a name has several answers, each look-up gets the next, and then the last."""

    def __init__(self, **answers: list[str]) -> None:
        """Underscores stand for dots; `a_test=["192.0.2.1", "192.0.2.2 192.0.2.3"]`."""
        self.asked: list[str] = []
        self._answers = {name.replace("_", "."): list(each) for name, each in answers.items()}

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if not answers:
            raise OSError(f"no such name: {host}")
        return (answers.pop(0) if len(answers) > 1 else answers[0]).split()


class NoNetwork(httpcore.AsyncNetworkBackend):
    """Connects nowhere, and remembers where it should have."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def connect_tcp(
        self, host: str, port: int, *_: Any, **__: Any
    ) -> httpcore.AsyncNetworkStream:
        self.asked.append(host)
        raise httpcore.ConnectError

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """A worker's `fetch`."""

    client: OutboundClient
    context: CallContext

    async def fetch(
        self,
        url: Any,
        *,
        method: Any = "GET",
        headers: Any = None,
        body: Any = None,
        stream: Any = None,
        **options: Any,
    ) -> HttpResponse:
        args = [method, url, headers, body, options]
        return await self.client.call(self.context, "fetch", args, stream)

    def of(self, tenant: TenantId) -> Outbound:
        return _outbound(self.client, tenant)


def _outbound(client: OutboundClient, tenant: TenantId) -> Outbound:
    context = CallContext(version=a_version(tenant=tenant), invocation=INVOCATION)
    return Outbound(client=client, context=context)


@asynccontextmanager
async def an_outbound(
    resolve: Any = None,
    *,
    network: httpcore.AsyncNetworkBackend | None = None,
    networks: tuple[str, ...] = LOOPBACK,
    **config: Any,
) -> AsyncIterator[Outbound]:
    settings = OutboundConfig(networks=networks, **config)
    async with open_outbound(settings, resolve=resolve, network=network) as client:
        yield _outbound(client, TENANT)


@asynccontextmanager
async def a_web(respond: Respond, **config: Any) -> AsyncIterator[tuple[Server, Outbound, str]]:
    """A server, a worker, and the URL at which the one finds the other."""
    async with a_server(respond) as server:
        names = Names(web_test=["127.0.0.1"], other_test=["127.0.0.1"])
        async with an_outbound(names, **config) as worker:
            yield server, worker, f"http://web.test:{server.port}/"
