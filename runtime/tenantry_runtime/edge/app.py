"""The routes of the edge, as one ASGI application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tenantry_runtime.errors import (
    MethodNotAllowed,
    RouteNotFound,
    TenantryError,
)

from . import envelope, errors
from .batch import BatchEndpoint
from .coverage import report_coverage
from .dialects import openai_errors
from .dialects.completions import Completions
from .dialects.dialect import Dialect
from .dialects.openai_chat import OpenAIChat
from .dialects.responses import Responses
from .dialects.workers_ai import WorkersAI
from .health import health, ready
from .listing import search_authors, search_models, search_tasks
from .model_schema import show_schema
from .openai_models import list_models, show_model
from .openapi import show_document
from .reply import JSON
from .run import RunEndpoint
from .services import Services

ACCOUNT = "/client/v4/accounts/{account}/ai"
RUN_ROUTE = f"{ACCOUNT}/run/{{model:path}}"

OPENAI_BASES = (f"{ACCOUNT}/v1", "/v1")
"""Where OpenAI's API is: under an account, and where clients insist on it; there the token says whose
it is."""

OPENAI_DIALECTS: Mapping[str, type[Dialect]] = MappingProxyType(
    {"chat/completions": OpenAIChat, "completions": Completions, "responses": Responses}
)


def build_app(
    services: Services, control: Sequence[BaseRoute] = (), has_workers: bool | None = None
) -> Starlette:
    """Put the routes together; `control` are those of the control plane.

    `has_workers`: whether workers run; None: they are not to.
    """
    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", partial(ready, services=services, has_workers=has_workers)),
            *_account_routes(services),
            *(route for base in OPENAI_BASES for route in _openai_routes(base, services)),
            Route("/openapi.json", partial(show_document, services=services)),
            *control,
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


def _account_routes(services: Services) -> list[Route]:
    listings = {
        "coverage": report_coverage,
        "models/search": search_models,
        "models/schema": show_schema,
        "tasks/search": search_tasks,
        "authors/search": search_authors,
        "openapi.json": show_document,
    }
    run = RunEndpoint(services, WorkersAI(), RUN_ROUTE)
    return [
        *(
            Route(f"{ACCOUNT}/{path}", partial(endpoint, services=services))
            for path, endpoint in listings.items()
        ),
        Route(RUN_ROUTE, BatchEndpoint(services, WorkersAI(), run), methods=["POST"]),
    ]


def _openai_routes(base: str, services: Services) -> list[Route]:
    runs = {f"{base}/{path}": dialect() for path, dialect in OPENAI_DIALECTS.items()}
    return [
        *(
            Route(path, RunEndpoint(services, dialect, path), methods=["POST"])
            for path, dialect in runs.items()
        ),
        Route(f"{base}/models", partial(list_models, services=services)),
        Route(f"{base}/models/{{model:path}}", partial(show_model, services=services)),
    ]


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return _response(request, MethodNotAllowed(request.method), error.headers)
    return _response(request, RouteNotFound())


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, TenantryError)
    return _response(request, error)


async def _failed(request: Request, _error: Exception) -> Response:
    # starlette raises the error again after this answer, and the server logs it
    return _response(request, TenantryError())


def _response(
    request: Request, error: TenantryError, headers: Mapping[str, str] | None = None
) -> Response:
    if _is_openai(request.url.path):
        status, body = openai_errors.status(error), openai_errors.failure(error)
    else:
        status, body = errors.answer(error).status, envelope.failure(error)
    return Response(body, status, headers={**JSON, **errors.headers(error), **(headers or {})})


def _is_openai(path: str) -> bool:
    """Say whether a path, also one that is no route, is of OpenAI's API."""
    return path.startswith("/v1/") or (path.startswith("/client/v4/") and "/ai/v1/" in path)
