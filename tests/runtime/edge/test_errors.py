from __future__ import annotations

from collections.abc import Iterator

import pytest

from tenantry_runtime.edge.errors import ANSWERS, Answer, answer, headers
from tenantry_runtime.errors import (
    BodyTooLarge,
    CapacityExceeded,
    ContextExceeded,
    Forbidden,
    InvalidInput,
    LedgerUnavailable,
    LimitExceeded,
    MethodNotAllowed,
    NodeLost,
    NodeUnavailable,
    QuotaExceeded,
    RateExceeded,
    RequestError,
    RequestTimeout,
    RouteNotFound,
    StoreUnavailable,
    TenantryError,
    Unauthenticated,
    UnknownModel,
)


def subclasses(cls: type[TenantryError]) -> Iterator[type[TenantryError]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from subclasses(subclass)


def test_the_table_has_every_error_and_nothing_else() -> None:
    of_the_runtime = {
        cls for cls in subclasses(TenantryError) if cls.__module__.startswith("tenantry_runtime.")
    }

    assert set(ANSWERS) == of_the_runtime


# documented by Cloudflare (platform/errors.mdx), or seen in its answers
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InvalidInput("max_tokens", "is bad"), (400, 5006)),
        (UnknownModel("x"), (400, 5007)),
        (BodyTooLarge(10), (413, 3006)),
        (ContextExceeded(262334, 262144), (413, 5021)),
        (Unauthenticated(), (401, 10000)),
        (Forbidden(), (403, 10000)),
        (RouteNotFound(), (404, 7000)),
        (MethodNotAllowed("GET"), (405, 7001)),
        (CapacityExceeded(), (429, 3040)),
        (RateExceeded("requests_per_minute", 1), (429, 3021)),
        (QuotaExceeded("daily_neurons", 1), (429, 3036)),
        (RequestTimeout(), (408, 3007)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TenantryError) else "",
)
def test_errors_have_cloudflares_status_and_code(
    error: TenantryError, expected: tuple[int, int]
) -> None:
    assert answer(error) == expected


def test_every_request_error_is_the_clients_and_every_other_is_not() -> None:
    for cls, (status, _) in ANSWERS.items():
        is_clients = issubclass(cls, RequestError) or cls in (CapacityExceeded, RequestTimeout)
        assert (400 <= status < 500) == is_clients, cls


def test_an_error_that_the_table_lacks_is_answered_like_its_base() -> None:
    class Later(InvalidInput):
        pass

    assert answer(Later("field", "problem")) == Answer(400, 5006)


PASSING: dict[TenantryError, str] = {
    CapacityExceeded(retry_after_s=7): "7",
    LimitExceeded("requests_per_minute", 30): "30",
    RateExceeded("tokens_per_minute", 31): "31",
    QuotaExceeded("daily_neurons", 43_200): "43200",
    NodeUnavailable("m"): "1",
    NodeLost("m"): "1",
    StoreUnavailable("gone"): "1",
    LedgerUnavailable(): "1",
}


def test_errors_that_pass_say_when_to_come_back() -> None:
    assert {cls for cls, (status, _) in ANSWERS.items() if status in (429, 503)} == {
        type(error) for error in PASSING
    }
    for error, seconds in PASSING.items():
        assert headers(error) == {"retry-after": seconds}
