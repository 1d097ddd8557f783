"""`GET …/ai/models/schema`: what a model takes and answers, as JSON schemas."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.tenancy import Scope

from . import envelope
from .authorization import by_token
from .dialects.chat_output import Completion
from .dialects.flat_output import FlatResult
from .dialects.workers_ai import RunInput
from .reply import JSON
from .services import Services

_RESULTS: dict[str, type[msgspec.Struct]] = {
    "chat.completion": Completion,
    "response": FlatResult,
}


class ModelSchema(msgspec.Struct, frozen=True, kw_only=True):
    # Any: JSON schemas
    input: dict[str, Any]
    output: dict[str, Any]


async def show_schema(request: Request, services: Services) -> Response:
    """Show the schemas of the model that the query names."""
    await by_token(services.authenticator, Scope.RUN)(request)
    name = request.query_params.get("model")
    if not name:
        raise InvalidInput("?model", "is required")
    entry = services.offers.resolve(name).entry
    schema = ModelSchema(
        input=msgspec.json.schema(RunInput),
        output=msgspec.json.schema(_RESULTS[entry.result_shape]),
    )
    return Response(envelope.success(schema), headers=JSON)
