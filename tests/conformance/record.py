"""Record what real clients send: `make record-clients`.

Runs the conformance suite's programs against `workerctl dev` with a proxy between them, and writes
each body that was answered, and differs from the others in more than its values, to `tests/support/client_bodies.json`:

| key | what |
|---|---|
| `client` | the program |
| `route` | `run`, or the part of the path behind `/v1/` |
| `body` | as it came |
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import msgspec

from support.client_bodies import FILE
from support.clients import MODELS, ask_client
from support.dev_server import LAST_LINE, a_dev_server

PROGRAMS = (
    "openai_client.py",
    "openai.mjs",
    "cloudflare_client.py",
    "langchain_client.py",
    "ai_sdk.mjs",
)
MAX_BYTES = 1500
"""Longer ones have long prompts."""
PASSED_ON = {"authorization", "content-type", "accept", "x-session-affinity"}


@dataclass(slots=True)
class Recorder:
    """A proxy that keeps what clients send."""

    target: str
    url: str = ""
    bodies: list[tuple[str, Any]] = field(default_factory=list)
    """Route and body, in their order."""

    def keep(self, path: str, body: bytes) -> None:
        # batches have a query
        route = "run" if "/ai/run/" in path else path.partition("/v1/")[2]
        if route and body and len(body) <= MAX_BYTES and "?" not in path:
            self.bodies.append((route, json.loads(body)))


@contextmanager
def recording(target: str) -> Iterator[Recorder]:
    """Serve a proxy of another server."""
    recorder = Recorder(target)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {
                name: value for name, value in self.headers.items() if name.lower() in PASSED_ON
            }
            answer = httpx.request(
                self.command,
                recorder.target + self.path,
                headers=headers,
                content=body,
                timeout=120,
            )
            if answer.status_code == 200:
                recorder.keep(self.path, body)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers["content-type"])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recorder.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield recorder
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def shape(value: Any) -> Any:
    """Return what a body is made of: keys and types, and words that name a choice."""
    match value:
        case dict():
            return {key: shape(each) for key, each in value.items()}
        case list():
            shapes: list[Any] = []
            for each in map(shape, value):
                if each not in shapes:
                    shapes.append(each)
            return shapes
        case str() if len(value) <= 12 and value.isidentifier():
            return value
        case _:
            return type(value).__name__


def main() -> None:
    kept: list[dict[str, Any]] = []
    shapes: list[Any] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        a_dev_server(Path(folder), patience_s=900) as server,
    ):
        server.wait_for_line(LAST_LINE)
        credentials = server.credentials
        target, _, path = credentials.base_url.partition("/client/")
        for program in PROGRAMS:
            with recording(target) as recorder:
                ask_client(
                    program,
                    MODELS[0],
                    msgspec.structs.replace(credentials, base_url=f"{recorder.url}/client/{path}"),
                )
            for route, body in recorder.bodies:
                if (this := [route, shape(body)]) not in shapes:
                    shapes.append(this)
                    kept.append({"client": program, "route": route, "body": body})
            print(f"{program}: {len(recorder.bodies)} requests, {len(kept)} bodies so far")
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
