"""A control plane in this process, over HTTP, with tails over WebSockets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from .fake_control_routes import answer
from .fake_control_state import (
    ACCOUNT,
    TOKEN,
    Call,
    ControlPlaneFake,
    Namespace,
    Paged,
    Part,
    Problem,
    Raw,
)

__all__ = [
    "ACCOUNT",
    "TOKEN",
    "Call",
    "ControlPlaneFake",
    "Namespace",
    "Problem",
    "a_control_plane",
]


@contextmanager
def a_control_plane() -> Iterator[ControlPlaneFake]:
    """Serve one on loopback, with its tails; leaving ends it."""
    fake = ControlPlaneFake()
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(fake)) as http,
        serve(
            lambda socket: _tell(fake, socket),
            "127.0.0.1",
            0,
            subprotocols=[Subprotocol("trace-v1")],
        ) as tails,
    ):
        http.daemon_threads = True
        fake.port = http.server_address[1]
        fake.tail_port = tails.socket.getsockname()[1]
        with _running(http), _running(tails):
            try:
                yield fake
            finally:
                fake.tail_ends.set()


@contextmanager
def _running(server: ThreadingHTTPServer | Server) -> Iterator[None]:
    # a short interval, so that a test does not wait for its end
    run = (
        (lambda: server.serve_forever(poll_interval=0.02))
        if isinstance(server, ThreadingHTTPServer)
        else server.serve_forever
    )
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def _tell(fake: ControlPlaneFake, socket: ServerConnection) -> None:
    try:
        assert socket.subprotocol == "trace-v1"
        assert json.loads(socket.recv()) == {"debug": False}
        for record in fake.records:
            socket.send(json.dumps(record))
        fake.tail_ends.wait()
    except ConnectionClosed:
        pass


def _handler_of(fake: ControlPlaneFake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            prefix = f"/client/v4/accounts/{ACCOUNT}/"
            call = Call(
                method=self.command,
                path="/" + url.path.removeprefix(prefix)
                if url.path.startswith(prefix)
                else url.path.removeprefix("/client/v4"),
                query={name: values[0] for name, values in parse_qs(url.query).items()},
                body=body,
                headers={name.lower(): value for name, value in self.headers.items()},
                parts=_parts(self.headers.get("content-type", ""), body),
            )
            with fake.changed:
                status, content = _answered(fake, call)
                fake.calls.append(call)
                fake.changed.notify_all()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _respond

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _answered(fake: ControlPlaneFake, call: Call) -> tuple[int, bytes]:
    info: dict[str, Any] | None = None
    try:
        if call.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Problem(401, 10000, "Authentication error")
        result = answer(fake, call)
    except Problem as problem:
        errors = [{"code": problem.code, "message": problem.message}]
        document = {"success": False, "errors": errors, "messages": [], "result": None}
        return problem.status, json.dumps(document).encode()
    if isinstance(result, Raw):
        return 200, result.content
    if isinstance(result, Paged):
        result, info = result.result, result.info
    messages = [{"code": 0, "message": message} for message in fake.messages]
    document = {"success": True, "errors": [], "messages": messages, "result": result}
    if info is not None:
        document["result_info"] = info
    return 200, json.dumps(document).encode()


def _parts(content_type: str, body: bytes) -> dict[str, Part]:
    if not content_type.startswith("multipart/form-data"):
        return {}
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    found: dict[str, Part] = {}
    for part in message.iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        name = part["content-disposition"].params["name"]
        found[name] = Part(part.get_content_type(), content)
    return found
