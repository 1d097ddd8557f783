"""`GET /openapi.json`: the API's document, made of the types that read requests and print answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .batch import BatchInput, Completed, Standing
from .coverage import CoverageOutput
from .dialects.chat_output import Completion
from .dialects.completions import CompletionsInput, TextCompletion
from .dialects.flat_output import FlatResult
from .dialects.openai_chat import ChatCompletionInput
from .dialects.openai_errors import OpenAIFailure
from .dialects.responses import ResponsesInput
from .dialects.responses_input import ITEMS
from .dialects.responses_items import ResponseObject
from .dialects.workers_ai import RunInput
from .envelope import Failure, ResultInfo
from .health import Readiness
from .listing import Author, ModelOutput, Task
from .model_schema import ModelSchema
from .openai_models import OpenAIModel, OpenAIModels
from .reply import JSON
from .services import Services

# Any: pieces of an OpenAPI document
Piece = dict[str, Any]

ACCOUNT = "/client/v4/accounts/{account}/ai"
JSON_TYPE = "application/json"


class Operation(NamedTuple):
    """One path and method."""

    path: str
    name: str
    summary: str
    result: Piece
    """Schema of the answer, envelope included."""
    bodies: Sequence[type[msgspec.Struct]] = ()
    """What the body may be; none for a GET."""
    is_openai: bool = False
    query: Sequence[Piece] = ()
    needs_token: bool = True


async def show_document(_request: Request, services: Services) -> Response:
    """Show the document of this installation, with its models; no token needed."""
    names = [name for offer in services.offers.all for name in offer.entry.names]
    return Response(msgspec.json.encode(document(names)), headers=JSON)


def document(models: Sequence[str]) -> Piece:
    """Make the document of an installation with these models."""
    types = (
        RunInput, ChatCompletionInput, CompletionsInput, ResponsesInput, Completion, FlatResult,
        TextCompletion, ResponseObject, CoverageOutput, ModelOutput, Task, Author, ModelSchema,
        OpenAIModel, OpenAIModels, OpenAIFailure, Failure, ResultInfo, Readiness, BatchInput, Standing,
        Completed, *ITEMS.values(),
    )  # fmt: skip
    _, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    paths: Piece = {}
    for operation in _operations():
        method = "post" if operation.bodies else "get"
        paths.setdefault(operation.path, {})[method] = _printed(operation, models)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tenantry", "version": version("tenantry")},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operations() -> list[Operation]:
    listed = [
        Operation("/health", "health", "Whether the process turns", {"type": "object"}, needs_token=False),
        Operation("/ready", "ready", "Whether every model is served", _ref("Readiness"), needs_token=False),
        Operation("/openapi.json", "openapi", "This document", {"type": "object"}, needs_token=False),
        Operation(f"{ACCOUNT}/openapi.json", "account_openapi", "This document", {"type": "object"}, needs_token=False),
        Operation(f"{ACCOUNT}/coverage", "coverage", "Which uses of cache pages are checked", _wrapped(_ref("CoverageOutput"))),
        Operation(f"{ACCOUNT}/models/search", "search_models", "The models that fit", _page(_ref("ModelOutput")), query=_SEARCH),
        Operation(f"{ACCOUNT}/models/schema", "model_schema", "What a model takes and answers", _wrapped(_ref("ModelSchema")), query=[_MODEL_QUERY]),
        Operation(f"{ACCOUNT}/tasks/search", "search_tasks", "What models are for", _wrapped(_list(_ref("Task")))),
        Operation(f"{ACCOUNT}/authors/search", "search_authors", "Who has made the models", _wrapped(_list(_ref("Author")))),
        Operation(f"{ACCOUNT}/run/{{model}}", "run", "Text, in Workers AI's dialect", _wrapped(_RUN_RESULT), (RunInput, BatchInput), query=_RUN_QUERY),
    ]  # fmt: skip
    for base, prefix in ((f"{ACCOUNT}/v1", "account_"), ("/v1", "")):
        listed += [
            Operation(f"{base}/chat/completions", f"{prefix}chat", "OpenAI's chat API", _ref("Completion"), (ChatCompletionInput,), True),
            Operation(f"{base}/completions", f"{prefix}completions", "OpenAI's older API", _ref("TextCompletion"), (CompletionsInput,), True),
            Operation(f"{base}/responses", f"{prefix}responses", "OpenAI's responses API", _ref("ResponseObject"), (ResponsesInput,), True),
            Operation(f"{base}/models", f"{prefix}models", "The models", _ref("OpenAIModels"), (), True),
            Operation(f"{base}/models/{{model}}", f"{prefix}model", "One model", _ref("OpenAIModel"), (), True),
        ]  # fmt: skip
    return listed


def _printed(operation: Operation, models: Sequence[str]) -> Piece:
    content: Piece = {JSON_TYPE: {"schema": operation.result}}
    if operation.bodies:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    failure = _ref("OpenAIFailure" if operation.is_openai else "Failure")
    responses: Piece = {"200": {"description": "The answer", "content": content}}
    if operation.path == "/ready":
        responses["503"] = {"description": "Not yet", "content": content}
    elif operation.needs_token:
        responses["default"] = {
            "description": "An error",
            "content": {JSON_TYPE: {"schema": failure}},
        }
    printed: Piece = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses,
        "security": [{"token": []}] if operation.needs_token else [],
        "parameters": [*_path_parameters(operation.path, models), *operation.query],
    }
    if operation.bodies:
        schema = _any_of(*(body.__name__ for body in operation.bodies))
        printed["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema}}}
    return printed


def _path_parameters(path: str, models: Sequence[str]) -> list[Piece]:
    schemas: Mapping[str, Piece] = {
        "account": {"type": "string", "minLength": 1},
        "model": {"type": "string", "enum": list(models)},
    }
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in schemas.items()
        if f"{{{name}}}" in path
    ]


def _query(name: str, schema: Piece, *, required: bool = False) -> Piece:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _ref(name: str) -> Piece:
    return {"$ref": f"#/components/schemas/{name}"}


def _any_of(*names: str) -> Piece:
    return _ref(names[0]) if len(names) == 1 else {"anyOf": [_ref(name) for name in names]}


def _list(items: Piece) -> Piece:
    return {"type": "array", "items": items}


def _wrapped(result: Piece) -> Piece:
    """Put a result into the envelope of `/client/v4`."""
    return {
        "type": "object",
        "required": ["result", "success", "errors", "messages"],
        "properties": {
            "result": result,
            "success": {"const": True},
            "errors": {"type": "array", "maxItems": 0},
            "messages": {"type": "array", "items": {"type": "string"}},
        },
    }


def _page(items: Piece) -> Piece:
    page = _wrapped(_list(items))
    page["properties"]["result_info"] = _ref("ResultInfo")
    return page


_RUN_RESULT = _any_of("Completion", "FlatResult", "Standing", "Completed")
_RUN_QUERY = [
    _query("queueRequest", {"enum": ["true", "false"]}),
    _query("tags", {"type": "string"}),
]
_MODEL_QUERY = _query("model", {"type": "string", "minLength": 1}, required=True)
_SEARCH = [
    *(_query(name, {"type": "string"}) for name in ("search", "author", "task", "source")),
    _query("hide_experimental", {"type": "boolean"}),
    _query("page", {"type": "integer", "minimum": 1}),
    _query("per_page", {"type": "integer", "minimum": 1, "maximum": 1000}),
]
