"""What a replay sends: the trace's requests with the session, the tenant and the name they go under."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tenantry_runtime.core import Share

from .sessions import SessionChains
from .trace import TraceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """One request of a replay."""

    trace: TraceRequest
    session: str
    tenant: str
    share: Share = field(default=Share())

    @property
    def request_id(self) -> str:
        return f"r{self.trace.number}"


def workload(requests: Iterable[TraceRequest], *, num_tenants: int = 1) -> Iterator[ReplayRequest]:
    """Name every request's session and spread sessions over tenants in turn."""
    chains = SessionChains()
    for request in requests:
        session = chains.assign(request.blocks)
        yield ReplayRequest(
            trace=request, session=f"s{session}", tenant=f"t{session % num_tenants}"
        )
