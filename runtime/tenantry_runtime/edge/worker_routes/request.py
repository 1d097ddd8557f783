"""What a worker is told of a request: method, URL and headers, within limits."""

from __future__ import annotations

from starlette.types import Scope

from tenantry_runtime.edge.dialects.dialect import SESSION_HEADER
from tenantry_runtime.telemetry import WorkerSpan
from tenantry_runtime.workers.headers import HOP_BY_HOP
from tenantry_runtime.workers.interface import Invocation

from .addresses import Address
from .authority import Authority
from .limits import MAX_HEADERS, RouteLimits
from .pages import Refused

_OURS = frozenset(
    {
        *("cf-ray", "cf-connecting-ip", "cf-visitor", "cf-worker", "cf-ew-via"),
        *("x-forwarded-prefix", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-port"),
        *("x-forwarded-server", "x-forwarded-for", "forwarded", "true-client-ip", "x-real-ip"),
        # said anew, as the request was routed
        "host",
    }
)
"""What the edge says of a request, and a client may not."""

_NOT_PASSED = HOP_BY_HOP | _OURS

COOKIE = "cookie"

_JOINTS = {"connection": ", ", "x-forwarded-for": ", ", COOKIE: "; "}
"""What stands between the values of a header that is one, however often it comes.

HTTP/2 sends a cookie in parts: RFC 9113, section 8.2.3, has them put together for all else.
"""

NO_HOST = "localhost"
"""What a worker sees as the host of a request that names none."""


class Head:
    """Everything of a request but its body, read in one pass."""

    def __init__(self, scope: Scope, authority: Authority) -> None:
        self.host = str(authority) or NO_HOST
        self.method: str = scope["method"]
        self.http_version: str = scope["http_version"]
        self.values: dict[str, str] = {}
        """The last value of each header; of those in `_JOINTS`, all."""
        self.query: str = scope["query_string"].decode("latin-1")
        client = scope.get("client")
        self.client_ip: str = client[0] if client else ""
        self._scope = scope
        self._passed: list[tuple[str, str]] = []
        num_bytes = 0
        for raw_name, raw_value in scope["headers"]:
            num_bytes += len(raw_name) + len(raw_value)
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            if name in _JOINTS and name in self.values:
                value = f"{self.values[name]}{_JOINTS[name]}{value}"
            self.values[name] = value
            if name not in _NOT_PASSED and name != COOKIE:
                self._passed.append((name, value))
        if COOKIE in self.values:
            self._passed.append((COOKIE, self.values[COOKIE]))
        self._num_bytes = num_bytes

    def check(self, limits: RouteLimits) -> None:
        """Raise `Refused` for CONNECT, and for a URL or headers over the limits."""
        if self.method == "CONNECT":
            raise Refused(405, "a worker is no proxy")
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
        path = address.path.decode("latin-1")
        url = f"{self._scope['scheme']}://{self.host}{path if path.startswith('/') else '/'}"
        return f"{url}?{self.query}" if self.query else url

    def headers(self, address: Address, ray: str) -> list[tuple[str, str]]:
        """Return the headers that the worker sees, in their order, ours last."""
        headers = self._passed
        connection = self.get("connection")
        if "," in connection or connection.lower() not in ("", "keep-alive", "close"):
            named = {part.strip().lower() for part in connection.split(",")}
            headers = [each for each in headers if each[0] not in named]
        if address.has_shared_origin:
            headers = [each for each in headers if each[0] != COOKIE]
        headers.append(("host", self.host))
        headers.append(("cf-ray", ray))
        headers.append(("x-forwarded-proto", self._scope["scheme"]))
        if self.client_ip:
            headers.append(("cf-connecting-ip", self.client_ip))
            # what the client says comes first, and is no more than that
            before = self.get("x-forwarded-for")
            via = f"{before}, {self.client_ip}" if before else self.client_ip
            headers.append(("x-forwarded-for", via))
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


def trace_of(ray: str) -> str:
    """Begin a trace with the id of a request, which is as good a one as any, of which nobody records this."""
    id = ray.replace("-", "")
    return f"00-{id}-{id[16:]}-01"
