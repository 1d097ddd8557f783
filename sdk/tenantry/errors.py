"""Everything that a call can fail with, named by situation.

TenantryError                    carries `status`, `code`, `request_id` and `retry_after`
├── ConfigurationError           base URL, account or token is missing or unusable; nothing was sent
├── ConnectionFailed             no connection, or it was lost before an answer
├── RequestTimeout               the server gave up (408), or was silent for longer than `timeout`
├── StreamTruncated              a stream ended with neither `[DONE]` nor an error
├── InvalidResponse              an answer that is not of this API, or not of the type asked for
├── AnswerCut                    a limit of tokens ended an answer that had to be whole
└── APIError                     the request was refused, or the server failed at it
    ├── InvalidInput             a field is missing, unknown, mistyped or out of range
    ├── UnknownModel             no such model; the message names near matches
    ├── ContextExceeded          prompt and answer do not fit the model's context
    ├── TooLarge                 the request's body is over the limit
    ├── AuthenticationError      no token, an unknown one, or one of another account
    ├── PermissionDenied         a good token that may not do this
    ├── NotFound                 no such path
    ├── RateLimited              too many requests in a time
    ├── QuotaExceeded            the account has used what it may; waiting a moment does not help
    ├── CapacityExceeded         the queue is full; `retry_after` says when to come back
    └── ServerError              the server failed, before the answer or in the middle of a stream

Catch broadly (`TenantryError`) or narrowly. Where the standard library has a word for the
situation, the class is of that type too: `ConnectionError`, `TimeoutError`, `ValueError`,
`LookupError`. All can be pickled.

To add one: derive it here, draw it above, give it its row in `ERROR_CLASSES`, and export it from
`tenantry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class TenantryError(Exception):
    """Base of every error that the SDK raises on purpose."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after = retry_after
        super().__init__(message)

    def __str__(self) -> str:
        marks = {"code": self.code, "request": self.request_id}
        known = ", ".join(f"{name}: {mark}" for name, mark in marks.items() if mark is not None)
        return f"{self.message} [{known}]" if known else self.message

    message: str
    """What happened, without code and request id, which `str()` adds."""
    status: int | None
    """HTTP status, if the server answered."""
    code: int | None
    """The API's own code, such as 5007."""
    request_id: str | None
    """What the server's logs and traces know the request by."""
    retry_after: float | None
    """Seconds after which the server invites another try."""


class ConfigurationError(TenantryError, ValueError):
    """Base URL, account or token is missing or unusable; nothing was sent."""


class ConnectionFailed(TenantryError, ConnectionError):
    """No connection could be made, or it was lost before an answer came."""


class RequestTimeout(TenantryError, TimeoutError):
    """The server gave up on the request, or sent nothing for longer than `timeout`."""


class StreamTruncated(TenantryError, ConnectionError):
    """A stream ended with neither `[DONE]` nor an error: the answer is not whole."""


class InvalidResponse(TenantryError):
    """The server answered with something that is not of this API, or not of the type asked for."""


class AnswerCut(TenantryError, ValueError):
    """A limit of tokens ended an answer that is worth nothing unless it is whole."""

    text: str = ""
    """What there is of the answer."""


class APIError(TenantryError):
    """The request was refused, or the server failed at it."""


class InvalidInput(APIError, ValueError):
    """A field of the request is missing, unknown, mistyped or out of range."""


class UnknownModel(APIError, LookupError):
    """The server offers no such model."""


class ContextExceeded(APIError, ValueError):
    """Prompt and answer do not fit the model's context."""


class TooLarge(APIError, ValueError):
    """The request's body is over the limit."""


class AuthenticationError(APIError):
    """The request carries no token, an unknown one, or one of another account."""


class PermissionDenied(APIError):
    """The token is good, but may not do this."""


class NotFound(APIError, LookupError):
    """No such path."""


class RateLimited(APIError):
    """Too many requests in a time."""


class QuotaExceeded(APIError):
    """The account has used what it may."""


class CapacityExceeded(APIError):
    """The server's queue is full."""


class ServerError(APIError):
    """The server failed, before the answer or in the middle of a stream."""


ERROR_CLASSES: Mapping[tuple[int, int | None], type[TenantryError]] = MappingProxyType(
    {
        (400, None): InvalidInput,
        (400, 5006): InvalidInput,
        (400, 5007): UnknownModel,
        (401, None): AuthenticationError,
        (401, 10000): AuthenticationError,
        (403, None): PermissionDenied,
        (403, 10000): AuthenticationError,
        (404, None): NotFound,
        (404, 3042): UnknownModel,
        (408, None): RequestTimeout,
        (408, 3007): RequestTimeout,
        (408, 3046): RequestTimeout,
        (413, None): TooLarge,
        (413, 3006): TooLarge,
        (413, 5021): ContextExceeded,
        (422, None): InvalidInput,
        (429, None): RateLimited,
        (429, 3021): RateLimited,
        (429, 3036): QuotaExceeded,
        (429, 3040): CapacityExceeded,
        (429, 4006): QuotaExceeded,
    }
)
"""(status, code) to class; the row with code None stands for every other code of that status."""

_BY_CODE = {code: cls for (_, code), cls in ERROR_CLASSES.items() if code is not None}


def error_class(status: int | None, code: int | None) -> type[TenantryError]:
    """Choose the class of an error answer; `status` is None for an error inside a stream."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status is None or status >= 500:
        return ServerError
    return ERROR_CLASSES.get((status, None), APIError)
