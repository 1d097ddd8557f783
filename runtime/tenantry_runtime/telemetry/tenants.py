"""Tenants' own spans, sent to tenants' own collectors: theirs alone, and nothing of where things run.

Of the logs of their workers, which the same file has a place for, `worker_logs.py` does the same.

The file that `TENANTRY_TENANT_TRACES` names:

```toml
[tenants.acme]
endpoint = "https://otlp.example.com/v1/traces"
logs = "https://otlp.example.com/v1/logs"
headers = { authorization = "Bearer …" }
content = true  # what its users and models say, too; to nobody else
```

Each tenant has a queue and a thread of its own, so that a collector that hangs costs its own tenant
alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, Status
from opentelemetry.util.types import Attributes

from tenantry_runtime.core import TenantId
from tenantry_runtime.errors import ConfigurationError

from . import names
from .endpoints import SERVICE_NAME, TIMEOUT_S
from .post import Post, PostLimits, PostStatistics
from .stages import BATCH
from .tenant_exporter import TenantExporter

MAX_TENANTS = 256
"""With collectors of their own: each costs a thread for spans, and one for logs."""
LIMITS = PostLimits(max_waiting=1024, max_batch=256)
"""A tenant's spans that wait: some 2 MiB."""
OF_TENANTS = Resource({"service.name": SERVICE_NAME})
"""What their telemetry is said to come from: nothing of where it does."""

Url: TypeAlias = Annotated[str, Meta(pattern="^https?://")]


class Destination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one tenant's telemetry goes: whole URLs, by OTLP over HTTP."""

    endpoint: Url | None = None
    """Of its spans; None: they go nowhere."""
    logs: Url | None = None
    """Of its workers' logs; None: they are kept at the edge alone."""
    headers: dict[str, str] = {}
    """Of requests to both."""
    content: bool = False
    """Whether what was said goes with the spans."""

    def __post_init__(self) -> None:
        if self.endpoint is None and self.logs is None:
            raise ValueError("neither endpoint, for spans, nor logs is given")


class TenantTraces(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    tenants: Annotated[dict[str, Destination], Meta(max_length=MAX_TENANTS)] = {}

    @property
    def has_spans(self) -> bool:
        """Whether a tenant gets its spans."""
        return any(each.endpoint is not None for each in self.tenants.values())


def read_tenant_traces(path: str | None) -> TenantTraces:
    """Read the file; no path, no tenants. Raises `ConfigurationError`."""
    if not path:
        return TenantTraces()
    try:
        with Path(path).open("rb") as file:
            return msgspec.convert(tomllib.load(file), TenantTraces)
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"traces of tenants, {path}: {error}") from error


class TenantPosts:
    """Sends each tenant its own spans. What is no tenant's goes to none."""

    def __init__(
        self,
        traces: TenantTraces,
        *,
        limits: PostLimits = LIMITS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`timeout_s` is of one request."""
        self._traces = traces
        self._posts = {
            tenant: Post[ReadableSpan](
                TenantExporter(
                    destination.endpoint,
                    destination.headers,
                    encode=_encoded,
                    what="spans",
                    timeout_s=timeout_s,
                ),
                name=tenant,
                limits=limits,
                prepare=_prepared(tenant, destination),
            )
            for tenant, destination in traces.tenants.items()
            if destination.endpoint is not None
        }

    @property
    def posts(self) -> Iterable[Post[ReadableSpan]]:
        return self._posts.values()

    def take(self, span: ReadableSpan) -> None:
        """Queue a span for the tenant that it is of, if that has a collector. Never waits."""
        attributes = span.attributes
        tenant = None if attributes is None else attributes.get(names.TENANT)
        post = self._posts.get(tenant) if isinstance(tenant, str) else None
        if post is not None:
            post.take(span)

    def shows_content(self, tenant: TenantId) -> bool:
        destination = self._traces.tenants.get(tenant)
        return destination is not None and destination.content

    def statistics(self) -> Mapping[str, PostStatistics]:
        """By tenant."""
        return {tenant: post.statistics() for tenant, post in self._posts.items()}


def without_content(span: ReadableSpan) -> ReadableSpan:
    """Return a span without what was said: what an operator may have of it."""
    attributes = span.attributes
    if attributes is None or names.CONTENT.isdisjoint(attributes):
        return span
    return _copy(span, hidden=names.CONTENT)


def of_tenant(span: ReadableSpan, *, has_content: bool) -> ReadableSpan:
    """Return a tenant's span as the tenant may have it.

    Not which members served it, nor requests of others that were in the batch, nor what an error says:
    its class is there, and the response said it.
    """
    hidden = names.OPERATORS_OWN if has_content else names.OPERATORS_OWN | names.CONTENT
    return _copy(
        span,
        hidden=hidden,
        links=[link for link in span.links if not _is_batch(link)],
        status=Status(span.status.status_code),
        resource=OF_TENANTS,
    )


def _encoded(spans: Sequence[ReadableSpan]) -> bytes:
    return bytes(encode_spans(spans).SerializeToString())


def _prepared(tenant: str, destination: Destination) -> Callable[[ReadableSpan], ReadableSpan]:
    def prepare(span: ReadableSpan) -> ReadableSpan:
        assert (span.attributes or {}).get(names.TENANT) == tenant, "another tenant's span"
        return of_tenant(span, has_content=destination.content)

    return prepare


def _copy(
    span: ReadableSpan,
    *,
    hidden: frozenset[str],
    links: Iterable[Link] | None = None,
    status: Status | None = None,
    resource: Resource | None = None,
) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=resource or span.resource,
        attributes=_without(span.attributes, hidden),
        events=[
            Event(event.name, _without(event.attributes, hidden), event.timestamp)
            for event in span.events
        ],
        links=span.links if links is None else tuple(links),
        kind=span.kind,
        status=status or span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _without(attributes: Attributes, hidden: frozenset[str]) -> Attributes:
    return {name: value for name, value in (attributes or {}).items() if name not in hidden}


def _is_batch(link: Link) -> bool:
    return (link.attributes or {}).get(names.LINK) == BATCH
