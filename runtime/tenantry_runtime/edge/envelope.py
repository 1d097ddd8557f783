"""The wrapping of every answer under `/client/v4`."""

from __future__ import annotations

from typing import Any

import msgspec

from tenantry_runtime.errors import (
    ConfigurationError,
    InvalidInput,
    StoreUnavailable,
    TenantryError,
)

from .errors import FIRST_GATEWAY_CODE, answer

INTERNAL = "Internal server error"

UPSTREAM = "Upstream service unavailable"

_NOTHING = msgspec.Raw(b"{}")
_NULL = msgspec.Raw(b"null")


class ErrorEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str


class ResultInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a list a page lies."""

    page: int
    per_page: int
    count: int
    total_count: int


class Success(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    # Any: whatever the route answers with
    result: Any
    # set, so that `omit_defaults` drops `result_info` alone
    success: bool
    errors: list[ErrorEntry]
    messages: list[str]
    result_info: ResultInfo | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    errors: list[ErrorEntry]
    success: bool = False
    result: msgspec.Raw
    messages: list[str] = []


_encoder = msgspec.json.Encoder()


# Any: anything that msgspec can print
def success(result: Any, result_info: ResultInfo | None = None) -> bytes:
    """Wrap a result; `msgspec.Raw` goes in as it is."""
    wrapped = Success(result=result, success=True, errors=[], messages=[], result_info=result_info)
    return _encoder.encode(wrapped)


def error_entry(error: TenantryError) -> ErrorEntry:
    """Describe an error as clients of the API know it."""
    return ErrorEntry(code=answer(error).code, message=message(error))


def failure(error: TenantryError) -> bytes:
    """Wrap an error. The gateway's carry a null result, those of Workers AI an empty one."""
    entry = error_entry(error)
    result = _NULL if entry.code >= FIRST_GATEWAY_CODE else _NOTHING
    return _encoder.encode(Failure(errors=[entry], result=result))


def message(error: TenantryError) -> str:
    """Say what happened, in the API's style."""
    match error:
        case InvalidInput(field="", problem=problem):
            return f"AiError: Bad input: {problem}"
        case InvalidInput(field=field, problem=problem):
            return f"AiError: Bad input: '{pointer(field)}': {problem}"
        case ConfigurationError():
            return INTERNAL
        case StoreUnavailable():
            return UPSTREAM
        case _:
            return str(error) or INTERNAL


def pointer(field: str) -> str:
    """Write a field's path as the API does: `messages[0].content` is `/messages/0/content`.

    A header's name and a query parameter (`?page`) stay as they are.
    """
    if "-" in field or field.startswith("?"):
        return field
    return "/" + field.replace("[", "/").replace("]", "").replace(".", "/")
