"""`GET /health` and `GET /ready`, for supervisors and load balancers; no token needed."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenantry_runtime.errors import StoreUnavailable

from .reply import JSON
from .services import Services


class Readiness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is there, and what is missing."""

    ready: bool
    store: bool
    models: dict[str, bool]
    """Whether a healthy node serves it."""
    workers: bool | None = None
    """Whether they run; absent where they are not to."""


async def health(_request: Request) -> Response:
    """Answer as long as the process turns."""
    return Response(b'{"status":"ok"}', headers=JSON)


async def ready(_request: Request, services: Services, has_workers: bool | None = None) -> Response:
    """Answer 200 if requests for every model on offer would be served, else 503."""
    try:
        await services.store.check()
    except StoreUnavailable:
        has_store = False
    else:
        has_store = True
    models = {
        offer.entry.id: services.nodes.can_serve(offer.entry.id) for offer in services.offers.all
    }
    is_ready = (
        has_store and all(models.values()) and not services.open_requests.statistics().is_closed
    )
    readiness = Readiness(ready=is_ready, store=has_store, models=models, workers=has_workers)
    return Response(msgspec.json.encode(readiness), 200 if is_ready else 503, headers=JSON)
