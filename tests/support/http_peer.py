"""A real HTTP server on loopback whose every byte a test decides, and which sees hang-ups."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# a test that waits longer has failed
PATIENCE_S = 20.0


class Exchange:
    """One connection: the request that came over it, and what is sent back."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_S)
        self._connection = connection
        with connection.makefile("rb") as reader:
            self.method, self.path, _ = reader.readline().decode().split(" ")
            self.headers: dict[str, str] = {}
            while line := reader.readline().decode().strip():
                name, _, value = line.partition(":")
                self.headers[name.lower()] = value.strip()
            self.body = reader.read(int(self.headers.get("content-length", 0)))

    @property
    def inputs(self) -> dict[str, Any]:
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded

    def send(self, sent: bytes) -> None:
        self._connection.sendall(sent)

    def send_json(
        self, body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        encoded = json.dumps(body).encode()
        fields = {
            "content-type": "application/json",
            "content-length": str(len(encoded)),
            "connection": "close",
            **(headers or {}),
        }
        self.send(_head(status, fields) + encoded)

    def send_result(self, result: object) -> None:
        self.send_json({"result": result, "success": True, "errors": [], "messages": []})

    def start_stream(self) -> None:
        fields = {
            "content-type": "text/event-stream",
            "transfer-encoding": "chunked",
            "connection": "close",
        }
        self.send(_head(200, fields))

    def send_event(self, event: object) -> None:
        """Send one `data:` event: a string as it is, anything else as JSON."""
        text = event if isinstance(event, str) else json.dumps(event)
        encoded = f"data: {text}\n\n".encode()
        self.send(b"%x\r\n%s\r\n" % (len(encoded), encoded))

    def end_stream(self) -> None:
        self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Vanish: the client sees a reset connection, not an orderly end."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()

    def wait_for_hangup(self) -> None:
        """Return when the client has closed the connection; a test that it does not fails here."""
        try:
            while self._connection.recv(4096):
                pass
        except ConnectionResetError:
            pass


@dataclass(eq=False)
class Peer:
    """What the server saw so far."""

    port: int
    exchanges: list[Exchange] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    servers: list[threading.Thread] = field(default_factory=list)
    connected: threading.Condition = field(default_factory=threading.Condition)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/client/v4"

    @property
    def environment(self) -> dict[str, str]:
        """What configures an SDK or a command line to call this server."""
        return {
            "TENANTRY_BASE_URL": self.base_url,
            "TENANTRY_ACCOUNT_ID": "dev",
            "TENANTRY_API_TOKEN": "token-of-dev",
        }

    def wait_for_scripts(self, num_connections: int) -> None:
        """Return when so many connections were made and their scripts have ended."""
        with self.connected:
            assert self.connected.wait_for(
                lambda: len(self.servers) >= num_connections, PATIENCE_S
            ), f"{len(self.servers)} connections, not {num_connections}"
        for server in self.servers:
            server.join(2 * PATIENCE_S)
            assert not server.is_alive(), "a script does not end"
        if self.failures:
            raise self.failures[0]


@contextmanager
def a_peer(script: Callable[[Exchange], None]) -> Iterator[Peer]:
    """Serve `script` to every connection; leaving waits for all of them, and raises what they did."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = Peer(listener.getsockname()[1])
        acceptor = threading.Thread(target=_accept, args=(listener, script, peer))
        acceptor.start()
        try:
            yield peer
        finally:
            # wakes accept(), which closing the listener alone does not
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join(PATIENCE_S)
    peer.wait_for_scripts(0)


def an_unused_port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _accept(listener: socket.socket, script: Callable[[Exchange], None], peer: Peer) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        server = threading.Thread(target=_serve, args=(connection, script, peer))
        server.start()
        with peer.connected:
            peer.servers.append(server)
            peer.connected.notify_all()


def _serve(connection: socket.socket, script: Callable[[Exchange], None], peer: Peer) -> None:
    with connection:
        try:
            exchange = Exchange(connection)
            peer.exchanges.append(exchange)
            script(exchange)
        except BaseException as failure:
            peer.failures.append(failure)


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode()
