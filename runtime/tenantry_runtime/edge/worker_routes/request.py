"""What a worker is told of a request: method, URL and headers, within limits."""

from __future__ import annotations

from starlette.types import Scope

from tenantry_runtime.edge.dialect import SESSION_HEADER
from tenantry_runtime.telemetry import WorkerSpan
from tenantry_runtime.workers.interface import Invocation

from .addresses import Address
from .limits import MAX_HEADERS, RouteLimits
from .pages import Refused

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers of one connection, not of a request or response; RFC 9110, section 7.6.1."""

_OURS = frozenset(
    {
        *("cf-ray", "cf-connecting-ip", "cf-visitor", "cf-worker", "cf-ew-via"),
        *("x-forwarded-prefix", "x-forwarded-proto", "true-client-ip", "x-real-ip"),
    }
)
"""What the edge says of a request, and a client may not."""

_NOT_PASSED = HOP_BY_HOP | _OURS


class Head:
    """Everything of a request but its body, read in one pass."""

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope["method"]
        self.http_version: str = scope["http_version"]
        self.values: dict[str, str] = {}
        """The last value of each header."""
        self.query: str = scope["query_string"].decode("latin-1")
        client = scope.get("client")
        self.client_ip: str = client[0] if client else ""
        self._scope = scope
        self._passed: list[tuple[str, str]] = []
        num_bytes = 0
        for raw_name, raw_value in scope["headers"]:
            num_bytes += len(raw_name) + len(raw_value)
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            self.values[name] = value
            if name not in _NOT_PASSED:
                self._passed.append((name, value))
        self._num_bytes = num_bytes

    def check(self, limits: RouteLimits) -> None:
        """Raise `Refused` for a URL or headers over the limits."""
        if len(raw_path(self._scope)) + len(self.query) > limits.max_url_bytes:
            raise Refused(414, f"the URL is longer than {limits.max_url_bytes} bytes")
        if len(self._passed) > MAX_HEADERS:
            raise Refused(431, f"the request has more than {MAX_HEADERS} headers")
        if self._num_bytes > limits.max_header_bytes:
            raise Refused(431, f"the headers are longer than {limits.max_header_bytes} bytes")

    def get(self, name: str) -> str:
        """Return a header, empty where there is none."""
        return self.values.get(name, "")

    def url(self, address: Address) -> str:
        """Return the URL that the worker sees, absolute."""
        scope = self._scope
        path = address.path.decode("latin-1")
        host = self.get("host") or "localhost"
        url = f"{scope['scheme']}://{host}{path if path.startswith('/') else '/'}"
        return f"{url}?{self.query}" if self.query else url

    def headers(self, address: Address, ray: str) -> list[tuple[str, str]]:
        """Return the headers that the worker sees, in their order, ours last."""
        headers = self._passed
        connection = self.get("connection")
        if "," in connection or connection.lower() not in ("", "keep-alive", "close"):
            named = {part.strip().lower() for part in connection.split(",")}
            headers = [each for each in headers if each[0] not in named]
        if address.has_shared_origin:
            headers = [each for each in headers if each[0] != "cookie"]
        headers.append(("cf-ray", ray))
        headers.append(("x-forwarded-proto", self._scope["scheme"]))
        if self.client_ip:
            headers.append(("cf-connecting-ip", self.client_ip))
        if address.prefix:
            headers.append(("x-forwarded-prefix", address.prefix))
        return headers

    def invocation(self, ray: str, span: WorkerSpan | None) -> Invocation:
        """Return the invocation that the request begins, in the span, or else in the client's trace."""
        if span is None:
            traceparent, tracestate = self.get("traceparent"), self.get("tracestate")
        else:
            traceparent, tracestate = span.traceparent, span.tracestate
        return Invocation(
            id=ray,
            traceparent=traceparent or trace_of(ray),
            tracestate=tracestate,
            session=self.get(SESSION_HEADER) or None,
            client_ip=self.client_ip,
        )


def raw_path(scope: Scope) -> bytes:
    """Return the path as the client wrote it, percent signs and all."""
    raw: bytes | None = scope.get("raw_path")
    return scope["path"].encode() if raw is None else raw.partition(b"?")[0]


def host_of(scope: Scope) -> bytes:
    """Return the Host header; empty where there is none."""
    for name, value in scope["headers"]:
        if name == b"host":
            return bytes(value)
    return b""


def trace_of(ray: str) -> str:
    """Begin a trace with the id of a request, which is as good a one as any, of which nobody records this."""
    id = ray.replace("-", "")
    return f"00-{id}-{id[16:]}-01"
