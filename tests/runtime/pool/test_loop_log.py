"""Records of a step loop's log on their way to the front: what they say, and what bounds them."""

from __future__ import annotations

import logging

import pytest

from tenantry_runtime.log_lines import JsonLines, about, told_error
from tenantry_runtime.pool.loop_log import MAX_CHARS, MAX_WAITING, Logged, LoopLog, record_of
from tenantry_runtime.pool.wire import decode_report, encode

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def log() -> logging.Logger:
    logger = logging.Logger("tenantry.test")
    logger.addHandler(LoopLog())
    return logger


def held(log: logging.Logger) -> LoopLog:
    [handler] = log.handlers
    assert isinstance(handler, LoopLog)
    return handler


def across(log: logging.Logger) -> list[logging.LogRecord]:
    """Return what the front makes of all that waits."""
    records = []
    while (logged := held(log).next()) is not None:
        report = decode_report(encode(logged))
        assert isinstance(report, Logged)
        records.append(record_of(report))
    return records


def test_a_record_is_the_same_on_the_other_side(log: logging.Logger) -> None:
    log.warning("hello %s", "you", extra=about("r-1", TRACEPARENT))
    [record] = across(log)
    assert (record.name, record.levelname) == ("tenantry.test", "WARNING")
    assert (record.getMessage(), record.pathname) == ("hello you", __file__)
    printed = JsonLines().format(record)
    assert f'"request_id": "r-1", "trace_id": "{"a" * 32}", "span_id": "{"b" * 16}"' in printed


def test_an_exception_crosses_as_what_it_says(log: logging.Logger) -> None:
    try:
        raise ValueError("out of luck")
    except ValueError:
        log.exception("failed")
    [record] = across(log)
    error = told_error(record)
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "out of luck")
    assert "test_loop_log.py" in error.stack


def test_what_is_too_much_is_dropped_and_counted(log: logging.Logger) -> None:
    for number in range(MAX_WAITING + 5):
        log.error("%d", number)
    assert [record.getMessage() for record in across(log)] == [str(n) for n in range(MAX_WAITING)]
    log.error("later")
    [record] = across(log)
    assert record.getMessage() == "later (5 records before it were too many and dropped)"


def test_a_long_message_is_cut(log: logging.Logger) -> None:
    log.error("x" * 10 * MAX_CHARS)
    [record] = across(log)
    assert len(record.getMessage()) == MAX_CHARS + 1


def test_a_message_that_cannot_be_made_does_not_reach_who_logs(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    log.error("%d", "no number")
    assert across(log) == []
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.parametrize("header", ["", "nonsense", "00-zz-yy-01", f"00-{'a' * 31}-{'b' * 16}-01"])
def test_a_header_that_names_no_span_leaves_the_request(header: str) -> None:
    assert about("r-1", header) == {"request_id": "r-1"}
