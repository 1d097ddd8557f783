"""Errors as OpenAI's clients know them, and Cloudflare's envelope around them.

One body serves both: `error` is OpenAI's, the rest is the envelope of `/client/v4`. Status and code
of the envelope are those of `errors.ANSWERS`; OpenAI's own differ in status where its clients tell
errors apart by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from tenantry_runtime.edge import envelope, errors
from tenantry_runtime.errors import (
    AccountSuspended,
    BodyTooLarge,
    CapacityExceeded,
    ContextExceeded,
    Forbidden,
    InvalidInput,
    LimitExceeded,
    MethodNotAllowed,
    NodeUnavailable,
    QuotaExceeded,
    RequestError,
    RequestTimeout,
    RouteNotFound,
    TenantryError,
    Unauthenticated,
    UnknownModel,
)


class Kind(NamedTuple):
    """What OpenAI calls an error."""

    type: str
    code: str | None = None
    param: str | None = None
    status: int | None = None
    """None: the one that every dialect answers with."""


KINDS: Mapping[type[TenantryError], Kind] = MappingProxyType(
    {
        TenantryError: Kind("server_error", "internal_error"),
        RequestError: Kind("invalid_request_error"),
        InvalidInput: Kind("invalid_request_error", "invalid_value"),
        BodyTooLarge: Kind("invalid_request_error", "request_too_large"),
        UnknownModel: Kind("invalid_request_error", "model_not_found", "model", 404),
        ContextExceeded: Kind("invalid_request_error", "context_length_exceeded", status=400),
        Unauthenticated: Kind("authentication_error", "invalid_api_key"),
        Forbidden: Kind("permission_error", "insufficient_permissions"),
        AccountSuspended: Kind("permission_error", "account_suspended"),
        RouteNotFound: Kind("invalid_request_error", "unknown_url"),
        MethodNotAllowed: Kind("invalid_request_error", "method_not_allowed"),
        LimitExceeded: Kind("rate_limit_error", "rate_limit_exceeded"),
        QuotaExceeded: Kind("insufficient_quota", "insufficient_quota"),
        CapacityExceeded: Kind("rate_limit_error", "capacity_exceeded"),
        NodeUnavailable: Kind("server_error", "service_unavailable"),
        RequestTimeout: Kind("timeout_error", "request_timeout"),
    }
)


class OpenAIError(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    type: str
    code: str | None
    param: str | None


class OpenAIFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An error in both forms: OpenAI's, and the API's envelope."""

    error: OpenAIError
    success: bool = False
    errors: list[envelope.ErrorEntry]
    messages: list[str] = []
    result: None = None


_encoder = msgspec.json.Encoder()


def describe(error: TenantryError) -> OpenAIFailure:
    """Describe an error in both forms."""
    kind = _kind(error)
    param = error.field or None if isinstance(error, InvalidInput) else kind.param
    return OpenAIFailure(
        error=OpenAIError(
            message=envelope.message(error), type=kind.type, code=kind.code, param=param
        ),
        errors=[envelope.error_entry(error)],
    )


def failure(error: TenantryError) -> bytes:
    """Print an error in both forms."""
    return _encoder.encode(describe(error))


def status(error: TenantryError) -> int:
    """Return the status that OpenAI's clients expect."""
    return _kind(error).status or errors.answer(error).status


def _kind(error: TenantryError) -> Kind:
    return next(KINDS[cls] for cls in type(error).__mro__ if cls in KINDS)
