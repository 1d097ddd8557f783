"""What the routes work with; made by the process's composition root."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from opentelemetry.trace import Tracer

from tenantry_runtime.telemetry.metrics import RequestMeter
from tenantry_runtime.tenancy import Authenticator, Ledger, Limiter, NoLedger, NoLimits, Store

from .config import Limits
from .drift import Unwatched, Watch
from .incidents import QuotaStorms
from .nodes import Nodes
from .offer import Offers
from .open_requests import OpenRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Shared by all requests of an edge."""

    offers: Offers
    nodes: Nodes
    store: Store
    authenticator: Authenticator
    tracer: Tracer
    open_requests: OpenRequests
    threads: anyio.CapacityLimiter
    """For requests that are too long for the event loop."""
    limits: Limits
    limiter: Limiter = field(default_factory=NoLimits)
    ledger: Ledger = field(default_factory=NoLedger)
    meter: RequestMeter = field(default_factory=RequestMeter)
    """Hears of every request that has ended."""
    storms: QuotaStorms | None = None
    """Hears of requests that a tenant's limit refused; None: nobody does."""
    drift: Watch = field(default_factory=Unwatched)
    """Hears of whole answers, and may ask for parts of them again."""
    show_routing: bool = False
    """Whether responses say in headers which members served them."""
