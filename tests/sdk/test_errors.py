"""Which error an answer becomes, and what an error carries."""

from __future__ import annotations

import pickle

import pytest

import tenantry
from tenantry import TenantryError
from tenantry.errors import ERROR_CLASSES, error_class

# from the API's documentation: status and code of each failure
DOCUMENTED: list[tuple[int | None, int | None, type[TenantryError]]] = [
    (400, 5006, tenantry.InvalidInput),
    (400, 5004, tenantry.InvalidInput),
    (400, None, tenantry.InvalidInput),
    (400, 5007, tenantry.UnknownModel),
    (404, 3042, tenantry.UnknownModel),
    (401, 10000, tenantry.AuthenticationError),
    (403, 10000, tenantry.AuthenticationError),
    (403, 5018, tenantry.PermissionDenied),
    (404, 7000, tenantry.NotFound),
    (405, 5019, tenantry.APIError),
    (408, 3007, tenantry.RequestTimeout),
    (408, 3046, tenantry.RequestTimeout),
    (413, 3006, tenantry.TooLarge),
    (413, None, tenantry.TooLarge),
    (413, 5021, tenantry.ContextExceeded),
    (400, 5021, tenantry.ContextExceeded),
    (429, 3021, tenantry.RateLimited),
    (429, None, tenantry.RateLimited),
    (429, 3036, tenantry.QuotaExceeded),
    (429, 4006, tenantry.QuotaExceeded),
    (429, 3040, tenantry.CapacityExceeded),
    (500, None, tenantry.ServerError),
    (503, 7009, tenantry.ServerError),
    (None, 3040, tenantry.CapacityExceeded),
    (None, None, tenantry.ServerError),
    (None, 99999, tenantry.ServerError),
]


@pytest.mark.parametrize(("status", "code", "expected"), DOCUMENTED)
def test_status_and_code_choose_the_class(
    status: int | None, code: int | None, expected: type[TenantryError]
) -> None:
    assert error_class(status, code) is expected


def test_every_code_of_the_table_is_of_one_class_only() -> None:
    classes: dict[int, set[type[TenantryError]]] = {}
    for (_, code), cls in ERROR_CLASSES.items():
        if code is not None:
            classes.setdefault(code, set()).add(cls)
    assert all(len(found) == 1 for found in classes.values())


@pytest.mark.parametrize(
    "name", [name for name in tenantry.__all__ if name in vars(tenantry.errors)]
)
def test_an_error_survives_pickling(name: str) -> None:
    cls: type[TenantryError] = getattr(tenantry, name)
    error = cls("it failed", status=429, code=3040, request_id="req-7", retry_after=1.5)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.args == error.args


def test_an_error_reads_as_message_code_and_request() -> None:
    error = tenantry.UnknownModel("No such model kimi", status=400, code=5007, request_id="req-7")
    assert str(error) == "No such model kimi [code: 5007, request: req-7]"
    assert str(tenantry.ConnectionFailed("no connection")) == "no connection"


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (tenantry.ConnectionFailed, ConnectionError),
        (tenantry.StreamTruncated, ConnectionError),
        (tenantry.RequestTimeout, TimeoutError),
        (tenantry.InvalidInput, ValueError),
        (tenantry.UnknownModel, LookupError),
        (tenantry.ConfigurationError, ValueError),
    ],
)
def test_an_error_is_also_what_the_standard_library_calls_it(
    cls: type[TenantryError], builtin: type[Exception]
) -> None:
    assert issubclass(cls, builtin)
