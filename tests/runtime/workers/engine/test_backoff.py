"""A version that cannot be loaded is tried ever more seldom, and forgiven by its first load."""

from __future__ import annotations

import pytest

from tenantry_runtime.workers.engine.backoff import LoadBackoff, LoadFailure, StartFailed
from tenantry_runtime.workers.interface import ErrorLine
from tenantry_runtime.workers.outcome import Outcome

FAILURE = LoadFailure(
    outcome=Outcome.LOAD_FAILED,
    message="NameError: name 'x' is not defined (entry.py, line 3)",
    error=ErrorLine(name="NameError", message="name 'x' is not defined", time_ms=0),
)


def a_backoff() -> LoadBackoff:
    return LoadBackoff(first_s=1.0, most_s=5.0)


def is_closed(backoff: LoadBackoff, now_s: float) -> bool:
    try:
        backoff.check(now_s)
    except StartFailed:
        return True
    return False


def test_each_failure_doubles_the_time_up_to_the_most() -> None:
    backoff = a_backoff()
    now_s = 100.0
    for wait_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        backoff.fail(now_s, FAILURE)
        assert is_closed(backoff, now_s + wait_s - 0.01)
        assert not is_closed(backoff, now_s + wait_s)
        now_s += wait_s


def test_whoever_comes_too_soon_is_told_why_and_when_to_come_again() -> None:
    backoff = a_backoff()
    backoff.fail(0.0, FAILURE)
    backoff.fail(1.0, FAILURE)
    with pytest.raises(StartFailed, match="NameError") as raised:
        backoff.check(1.5)
    assert raised.value.outcome is Outcome.LOAD_FAILED
    assert raised.value.retry_after_s == 2
    assert raised.value.failure is FAILURE


def test_a_load_that_succeeds_makes_the_next_failure_the_first() -> None:
    backoff = a_backoff()
    for now_s in (0.0, 1.0, 3.0):
        backoff.fail(now_s, FAILURE)
    backoff.succeed()
    assert not backoff.is_trying
    assert not is_closed(backoff, 3.0)
    backoff.fail(10.0, FAILURE)
    assert not is_closed(backoff, 11.0)
