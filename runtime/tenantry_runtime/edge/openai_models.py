"""OpenAI's `GET /v1/models` and `/v1/models/{model}`."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenantry_runtime.catalog import CatalogEntry
from tenantry_runtime.tenancy import Scope

from .authorization import by_token
from .reply import JSON
from .services import Services

NOBODY = "unknown"


class OpenAIModel(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class OpenAIModels(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[OpenAIModel]


async def list_models(request: Request, services: Services) -> Response:
    """List the models, each by its id."""
    await _authenticate(request, services)
    models = OpenAIModels(data=[_model(offer.entry) for offer in services.offers.all])
    return Response(msgspec.json.encode(models), headers=JSON)


async def show_model(request: Request, services: Services) -> Response:
    """Show a model, by any of its names."""
    await _authenticate(request, services)
    offer = services.offers.resolve(request.path_params["model"])
    return Response(msgspec.json.encode(_model(offer.entry)), headers=JSON)


async def _authenticate(request: Request, services: Services) -> None:
    await by_token(services.authenticator, Scope.RUN)(request)


def _model(entry: CatalogEntry) -> OpenAIModel:
    return OpenAIModel(id=entry.id, created=entry.created_s, owned_by=entry.author or NOBODY)
