"""Errors in both forms, as OpenAI's clients and Cloudflare's know them."""

from __future__ import annotations

import json

import pytest

from tenantry_runtime.edge.dialects import openai_errors
from tenantry_runtime.edge.errors import ANSWERS, answer
from tenantry_runtime.errors import (
    AccountSuspended,
    CapacityExceeded,
    ContextExceeded,
    Forbidden,
    GenerationFailed,
    InvalidInput,
    NodeLost,
    QuotaExceeded,
    RateExceeded,
    RequestTimeout,
    RouteNotFound,
    TenantryError,
    Unauthenticated,
    UnknownModel,
)

# types and codes as OpenAI's documentation and client libraries have them, where they have any
KNOWN: list[tuple[TenantryError, int, str, str | None]] = [
    (InvalidInput("top_p", "is bad"), 400, "invalid_request_error", "invalid_value"),
    (UnknownModel("x"), 404, "invalid_request_error", "model_not_found"),
    (ContextExceeded(20, 10), 400, "invalid_request_error", "context_length_exceeded"),
    (Unauthenticated(), 401, "authentication_error", "invalid_api_key"),
    (Forbidden(), 403, "permission_error", "insufficient_permissions"),
    (AccountSuspended(), 403, "permission_error", "account_suspended"),
    (RouteNotFound(), 404, "invalid_request_error", "unknown_url"),
    (RateExceeded("requests_per_minute", 1), 429, "rate_limit_error", "rate_limit_exceeded"),
    (QuotaExceeded("daily_neurons", 1), 429, "insufficient_quota", "insufficient_quota"),
    (CapacityExceeded(), 429, "rate_limit_error", "capacity_exceeded"),
    (NodeLost("m"), 503, "server_error", "service_unavailable"),
    (GenerationFailed("x"), 500, "server_error", "internal_error"),
    (RequestTimeout(), 408, "timeout_error", "request_timeout"),
]


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"), KNOWN, ids=lambda value: type(value).__name__
)
def test_an_error_has_openais_status_type_and_code_and_cloudflares_entry(
    error: TenantryError, status: int, kind: str, code: str | None
) -> None:
    body = json.loads(openai_errors.failure(error))

    assert openai_errors.status(error) == status
    assert (body["error"]["type"], body["error"]["code"]) == (kind, code)
    assert body["errors"] == [{"code": answer(error).code, "message": body["error"]["message"]}]
    assert (body["success"], body["messages"], body["result"]) == (False, [], None)


def test_the_parameter_is_named_as_the_client_wrote_it() -> None:
    body = json.loads(openai_errors.failure(InvalidInput("messages[0].content", "is bad")))

    assert body["error"]["param"] == "messages[0].content"
    assert json.loads(openai_errors.failure(InvalidInput("", "is bad")))["error"]["param"] is None


def test_only_two_statuses_are_not_those_of_the_other_dialect() -> None:
    own = {cls for cls, kind in openai_errors.KINDS.items() if kind.status is not None}

    assert own == {UnknownModel, ContextExceeded}
    assert set(openai_errors.KINDS) <= set(ANSWERS)
