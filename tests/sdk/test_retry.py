"""Which failures are tried again, and after how long."""

from __future__ import annotations

from email.utils import formatdate

import httpx
import pytest

from tenantry import ConnectionFailed, RequestTimeout
from tenantry._response import answer_error, retry_after_s
from tenantry._retry import RetryPolicy

NOW_S = 1_700_000_000.0


def wait_s(
    status: int,
    *,
    code: int | None = None,
    num_retries: int = 0,
    chance: float = 0.0,
    max_retries: int = 9,
    **headers: str,
) -> float | None:
    entry = {"message": "it failed", "code": code}
    response = httpx.Response(
        status,
        json={"errors": [entry], "success": False},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )
    policy = RetryPolicy(max_retries=max_retries, chance=lambda: chance)
    error = answer_error(response, now=lambda: NOW_S)
    return policy.wait_s(error, response, num_retries=num_retries)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_what_a_moment_may_cure_is_tried_again(status: int) -> None:
    assert wait_s(status) == 0.5


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413, 422])
def test_what_no_moment_cures_is_not(status: int) -> None:
    assert wait_s(status) is None


def test_a_used_up_quota_is_not_tried_again_though_a_rate_limit_is() -> None:
    assert wait_s(429, code=3036, retry_after="1") is None
    assert wait_s(429, code=3021, retry_after="1") == 1
    assert wait_s(429, code=3040, retry_after="1") == 1


def test_a_lost_connection_is_tried_again_but_silence_is_not() -> None:
    policy = RetryPolicy(chance=lambda: 0.0)
    assert policy.wait_s(ConnectionFailed("lost"), None, num_retries=0) == 0.5
    assert policy.wait_s(RequestTimeout("silent"), None, num_retries=0) is None


def test_the_server_overrules_the_status() -> None:
    assert wait_s(400, x_should_retry="true") == 0.5
    assert wait_s(500, x_should_retry="false") is None
    assert wait_s(429, code=3036, x_should_retry="true") == 0.5
    assert wait_s(500, x_should_retry="perhaps") == 0.5


def test_waits_double_up_to_eight_seconds() -> None:
    waits = [wait_s(500, num_retries=num_retries) for num_retries in range(7)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_chance_takes_up_to_a_quarter_off() -> None:
    assert wait_s(500, num_retries=4, chance=0.5) == 7.0
    assert wait_s(500, num_retries=4, chance=1.0) == 6.0


def test_after_the_last_retry_the_call_fails() -> None:
    assert wait_s(500, num_retries=1, max_retries=2) == 1.0
    assert wait_s(500, num_retries=2, max_retries=2) is None
    assert wait_s(500, max_retries=0) is None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": formatdate(NOW_S + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW_S - 30, usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_every_form_of_retry_after_is_read(headers: dict[str, str], expected: float | None) -> None:
    assert retry_after_s(httpx.Headers(headers), now=lambda: NOW_S) == expected


def test_the_server_says_how_long_up_to_a_minute() -> None:
    assert wait_s(429, retry_after="60") == 60.0
    assert wait_s(429, retry_after_ms="1500", num_retries=3) == 1.5
    assert wait_s(429, retry_after="0") == 0.5


def test_a_longer_wait_is_the_callers_to_decide() -> None:
    assert wait_s(429, retry_after="61") is None
    assert wait_s(503, retry_after="3600") is None
    assert wait_s(429, code=3036, retry_after="43200", x_should_retry="true") is None


def test_a_negative_number_of_retries_is_refused() -> None:
    with pytest.raises(ValueError, match="max_retries is -1"):
        RetryPolicy(max_retries=-1)
