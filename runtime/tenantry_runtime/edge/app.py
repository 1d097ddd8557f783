"""The routes of the edge, as one ASGI application."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tenantry_runtime.errors import (
    MethodNotAllowed,
    RouteNotFound,
    TenantryError,
)

from . import envelope, errors
from .coverage import report_coverage
from .health import health, ready
from .listing import search_models
from .reply import JSON
from .run import ROUTE as RUN_ROUTE, RunEndpoint
from .services import Services
from .workers_ai import WorkersAI

COVERAGE_ROUTE = "/client/v4/accounts/{account}/ai/coverage"
MODELS_ROUTE = "/client/v4/accounts/{account}/ai/models/search"


def build_app(services: Services) -> Starlette:
    """Put the routes together."""
    run = RunEndpoint(services, WorkersAI())
    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", partial(ready, services=services)),
            Route(COVERAGE_ROUTE, partial(report_coverage, services=services)),
            Route(MODELS_ROUTE, partial(search_models, services=services)),
            Route(RUN_ROUTE, run, methods=["POST"]),
        ],
        exception_handlers={
            HTTPException: _not_routed,
            TenantryError: _refused,
            Exception: _failed,
        },
    )
    # an API answers at its paths, not near them
    app.router.redirect_slashes = False
    return app


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _response(MethodNotAllowed(request.method), error.headers)
    return _response(RouteNotFound())


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TenantryError)
    return _response(error)


async def _failed(_request: Request, _error: Exception) -> Response:
    # starlette raises the error again after this answer, and the server logs it
    return _response(TenantryError())


def _response(error: TenantryError, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        envelope.failure(error),
        errors.answer(error).status,
        headers={**JSON, **errors.headers(error), **(headers or {})},
    )
