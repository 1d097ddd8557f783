"""Status and code of every error that the runtime raises on purpose: one table.

Codes are Cloudflare's. From 7000 on they are the API gateway's, below they are Workers AI's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from tenantry_runtime.errors import (
    AccountSuspended,
    BodyTooLarge,
    CacheIntegrityError,
    CapacityExceeded,
    CheckpointError,
    ConfigurationError,
    ContextExceeded,
    ConversionError,
    DependenciesMissing,
    DependenciesRefused,
    DeploymentError,
    Forbidden,
    GenerationFailed,
    HandoffFailed,
    IncompatibleNode,
    InvalidInput,
    KvRefused,
    LedgerUnavailable,
    LimitExceeded,
    MethodNotAllowed,
    NewestNotDeployed,
    NodeLost,
    NodeUnavailable,
    NoSuchRecord,
    NotEnoughSpace,
    QuotaExceeded,
    RateExceeded,
    ReaderTooSlow,
    RecordExists,
    RecordInUse,
    RequestError,
    RequestTimeout,
    RouteNotFound,
    ScriptRefused,
    SecretDamaged,
    SecretKeyMissing,
    StoreUnavailable,
    TenantryError,
    Unauthenticated,
    UnknownModel,
)
from tenantry_runtime.workers.sandbox import (
    InterpreterUnusable,
    SandboxTooWeak,
    SpawnFailed,
    TemplateFailed,
)

FIRST_GATEWAY_CODE = 7000


class Answer(NamedTuple):
    """What a client is told of an error."""

    status: int
    code: int


ANSWERS: Mapping[type[TenantryError], Answer] = MappingProxyType(
    {
        TenantryError: Answer(500, 3043),
        RequestError: Answer(400, 5006),
        InvalidInput: Answer(400, 5006),
        KvRefused: Answer(400, 5006),
        BodyTooLarge: Answer(413, 3006),
        UnknownModel: Answer(400, 5007),
        ContextExceeded: Answer(413, 5021),
        Unauthenticated: Answer(401, 10000),
        Forbidden: Answer(403, 10000),
        AccountSuspended: Answer(403, 3023),
        NoSuchRecord: Answer(404, 7003),
        RecordExists: Answer(409, 7003),
        RecordInUse: Answer(409, 7003),
        ScriptRefused: Answer(400, 10021),
        NewestNotDeployed: Answer(400, 10215),
        DependenciesRefused: Answer(400, 10021),
        RouteNotFound: Answer(404, 7000),
        MethodNotAllowed: Answer(405, 7001),
        CapacityExceeded: Answer(429, 3040),
        LimitExceeded: Answer(429, 3021),
        RateExceeded: Answer(429, 3021),
        QuotaExceeded: Answer(429, 3036),
        NodeUnavailable: Answer(503, 7009),
        NodeLost: Answer(503, 7009),
        StoreUnavailable: Answer(503, 7009),
        LedgerUnavailable: Answer(503, 7009),
        GenerationFailed: Answer(500, 3043),
        HandoffFailed: Answer(500, 3043),
        ReaderTooSlow: Answer(500, 3043),
        CacheIntegrityError: Answer(500, 3043),
        RequestTimeout: Answer(408, 3007),
        # an operator's business: a client learns no more than that it is not its own fault
        ConfigurationError: Answer(500, 3043),
        InterpreterUnusable: Answer(500, 3043),
        SandboxTooWeak: Answer(500, 3043),
        SpawnFailed: Answer(500, 3043),
        TemplateFailed: Answer(500, 3043),
        DependenciesMissing: Answer(500, 3043),
        SecretKeyMissing: Answer(500, 3043),
        SecretDamaged: Answer(500, 3043),
        CheckpointError: Answer(500, 3043),
        DeploymentError: Answer(500, 3043),
        ConversionError: Answer(500, 3043),
        NotEnoughSpace: Answer(500, 3043),
        IncompatibleNode: Answer(500, 3043),
    }
)

RETRY_AFTER_S = 1
"""Of an error that passes by itself but does not say when."""


def answer(error: TenantryError) -> Answer:
    """Look an error up; a class that the table lacks is answered like its nearest base."""
    return next(ANSWERS[cls] for cls in type(error).__mro__ if cls in ANSWERS)


def headers(error: TenantryError) -> dict[str, str]:
    """Return the headers that go with an error's status."""
    match error:
        case CapacityExceeded(retry_after_s=seconds) | LimitExceeded(retry_after_s=seconds):
            return {"retry-after": str(seconds)}
        case NodeUnavailable() | LedgerUnavailable() | StoreUnavailable():
            return {"retry-after": str(RETRY_AFTER_S)}
        case Unauthenticated():
            return {"www-authenticate": "Bearer"}
        case BodyTooLarge():
            # the rest of the body is not read, so nothing can follow on this connection
            return {"connection": "close"}
        case _:
            return {}
