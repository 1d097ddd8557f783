"""What the control plane refuses, with the codes by which Cloudflare's clients know it.

| code | status | what |
|---|---|---|
| 7000 | 404 | a product that there is not here: names it |
| 10000 | 401, 403 | no token, or one of another account or scope |
| 10001 | 400 | a request that is not written as it should be |
| 10007, 10090 | 404 | no such worker; the second where a service was asked for |
| 10009, 10013 | 404 | no such key, no such KV namespace |
| 10014 | 400 | the account has a KV namespace of the title |
| 10020 | 400 | a route that is not the account's or leads elsewhere |
| 10021 | 400 | the upload cannot be a worker here: names file and line |
| 10027 | 413 | an upload that is too large |
| 10056 | 404 | no such secret |
| 10215 | 400 | a secret cannot be changed: the newest version is not deployed |
"""

from __future__ import annotations

from tenantry_runtime.edge import envelope, errors
from tenantry_runtime.errors import (
    BodyTooLarge,
    InvalidInput,
    NoSuchRecord,
    RecordExists,
    RequestError,
    TenantryError,
)
from tenantry_runtime.tenancy.kv_entry import KvRefused
from tenantry_runtime.tenancy.workers.patterns import FIELD as PATTERN

KV_NAMESPACE = "KV namespace"
"""What `tenancy.kv` calls it in its errors."""

SERVICE, PRODUCT = "service", "product"

_MISSING = {
    "worker": 10007,
    "secret": 10056,
    "key": 10009,
    KV_NAMESPACE: 10013,
    SERVICE: 10090,
    PRODUCT: 7000,
}


def refused(error: TenantryError) -> tuple[int, envelope.ErrorEntry]:
    """Return an answer's status, and what it says is wrong."""
    status, code = _status_and_code(error)
    if isinstance(error, RecordExists) and error.kind == KV_NAMESPACE:
        message = f"a KV namespace has the title {error.id!r} already; choose another title"
        return status, envelope.ErrorEntry(code=code, message=message)
    message = str(error) if isinstance(error, RequestError) else envelope.message(error)
    return status, envelope.ErrorEntry(code=code, message=message)


def _status_and_code(error: TenantryError) -> tuple[int, int]:
    match error:
        case NoSuchRecord(kind=kind):
            return 404, _MISSING.get(kind, 7003)
        case RecordExists(kind=kind) if kind == KV_NAMESPACE:
            return 400, 10014
        case InvalidInput(field=field) if field == PATTERN:
            return 400, 10020
        case BodyTooLarge():
            return 413, 10027
        case KvRefused(status=status):
            return status, 10001
        case InvalidInput():
            return 400, 10001
        case _:
            known = errors.answer(error)
            return known.status, known.code
