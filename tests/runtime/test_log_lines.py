from __future__ import annotations

import json
import logging
import sys

import pytest

from tenantry_runtime.errors import ConfigurationError
from tenantry_runtime.log_lines import JsonLines, formatter


def a_record(message: str = "hello %s", *arguments: object) -> logging.LogRecord:
    return logging.LogRecord(
        "tenantry.test", logging.WARNING, __file__, 1, message, arguments, None
    )


def test_a_line_is_one_object_whatever_the_message_has_in_it() -> None:
    record = a_record('a "quote"\nand %s', "a line\u2028end")
    record.created = 1_700_000_000.25
    printed = JsonLines().format(record)
    assert "\n" not in printed
    line = json.loads(printed)
    assert line == {
        "time": "2023-11-14T22:13:20.250000+00:00",
        "level": "WARNING",
        "logger": "tenantry.test",
        "message": 'a "quote"\nand a line\u2028end',
        "process": record.process,
    }


def test_a_record_about_a_request_has_its_trace() -> None:
    record = a_record("hello")
    record.trace_id, record.span_id = "a" * 32, "b" * 16
    line = json.loads(JsonLines().format(record))
    assert (line["trace_id"], line["span_id"]) == ("a" * 32, "b" * 16)


def test_an_exception_is_told_with_its_stack() -> None:
    record = a_record("failed")
    try:
        raise ValueError("out of luck")
    except ValueError:
        record.exc_info = sys.exc_info()
    error = json.loads(JsonLines().format(record))["error"]
    assert (error["type"], error["message"]) == ("ValueError", "out of luck")
    assert "test_log_lines.py" in error["stack"]


def test_the_variable_chooses_and_is_checked() -> None:
    assert isinstance(formatter({"TENANTRY_LOG_FORMAT": "json"}), JsonLines)
    assert not isinstance(formatter({}), JsonLines)
    with pytest.raises(ConfigurationError, match="yaml"):
        formatter({"TENANTRY_LOG_FORMAT": "yaml"})
