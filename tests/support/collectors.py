"""OTLP collectors: one that keeps what it is sent, and ways in which one can fail."""

from __future__ import annotations

import gzip
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE_S = 30.0
POLL_S = 0.02
"""Until a server that is told to end has noticed."""


class Posted(NamedTuple):
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what exporters post."""

    daemon_threads = True

    def __init__(self, port: int = 0, *, status: int = 200) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.status = status
        self.posted: list[Posted] = []
        self._changed = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def keep(self, posted: Posted) -> None:
        with self._changed:
            self.posted.append(posted)
            self._changed.notify_all()

    def wait_for(self, num_posts: int) -> None:
        """Return when so many posts have come in all."""
        with self._changed:
            has_come = self._changed.wait_for(lambda: len(self.posted) >= num_posts, PATIENCE_S)
        assert has_come, f"{len(self.posted)} of {num_posts} posts have come"

    @property
    def spans(self) -> list[Span]:
        """All that were posted, in the order in which they came."""
        requests = [ExportTraceServiceRequest.FromString(posted.body) for posted in self.posted]
        return [
            span
            for request in requests
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    @property
    def records(self) -> list[LogRecord]:
        """All log records that were posted, in the order in which they came."""
        return [record for _, record in self.records_by_source]

    @property
    def records_by_source(self) -> list[tuple[Resource, LogRecord]]:
        """The same, with what each is said to come from."""
        requests = [ExportLogsServiceRequest.FromString(posted.body) for posted in self.posted]
        return [
            (of_resource.resource, record)
            for request in requests
            for of_resource in request.resource_logs
            for of_scope in of_resource.scope_logs
            for record in of_scope.log_records
        ]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        # who has the answer may look at once
        self.server.keep(Posted(self.path, headers, body))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def a_collector(port: int = 0, *, status: int = 200) -> Iterator[Collector]:
    with Collector(port, status=status) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def a_hanging_collector() -> Iterator[str]:
    """Yield the URL of one that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def a_refusing_collector() -> Iterator[str]:
    """Yield a URL at which nobody listens, and nobody else can meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def attributes_of(one: Span | LogRecord | Resource) -> dict[str, object]:
    """Return the attributes of one as plain values."""
    values: dict[str, object] = {}
    for attribute in one.attributes:
        kind = attribute.value.WhichOneof("value")
        assert kind is not None
        values[attribute.key] = getattr(attribute.value, kind)
    return values
