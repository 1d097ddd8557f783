"""Cloudflare's dialect of cron. Expected times are those of its own parser's rules and of the calendar."""

from __future__ import annotations

import calendar
from datetime import UTC, datetime, timedelta

import pytest

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.cron import parse_cron

# a Sunday, and a month of 30 days that ends on a Monday
START = datetime(2026, 11, 1, tzinfo=UTC)


def due(text: str, *, start: datetime = START, days: int = 1) -> list[datetime]:
    expression = parse_cron(text)
    minutes = (start + timedelta(minutes=minute) for minute in range(days * 1440))
    return [each for each in minutes if expression.is_due(int(each.timestamp()) // 60)]


def days_of(text: str, *, year: int = 2026, month: int = 11) -> list[int]:
    start = datetime(year, month, 1, tzinfo=UTC)
    num_days = calendar.monthrange(year, month)[1]
    return [each.day for each in due(f"0 0 {text}", start=start, days=num_days)]


def test_stars_are_every_minute() -> None:
    assert len(due("* * * * *")) == 1440


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*/20", [0, 20, 40]),
        ("5", [5]),
        ("5,7", [5, 7]),
        ("10-12", [10, 11, 12]),
        ("10-20/5", [10, 15, 20]),
        ("50/4", [50, 54, 58]),
        ("58-1", [0, 1, 58, 59]),
        ("*/30,7", [0, 7, 30]),
    ],
)
def test_lists_ranges_and_steps(field: str, minutes: list[int]) -> None:
    assert [each.minute for each in due(f"{field} 3 * * *")] == minutes


def test_hours_go_past_midnight() -> None:
    assert [each.hour for each in due("0 22-2 * * *")] == [0, 1, 2, 22, 23]


@pytest.mark.parametrize("name", ["11", "NOV", "nov", "OCT-DEC"])
def test_months_have_numbers_and_names(name: str) -> None:
    assert days_of(f"1 {name} *") == [1]
    assert days_of(f"1 {name} *", month=9) == []


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("1", [1, 8, 15, 22, 29]),
        ("SUN", [1, 8, 15, 22, 29]),
        ("7", [7, 14, 21, 28]),
        ("sat", [7, 14, 21, 28]),
        ("L", [7, 14, 21, 28]),
        ("2-6", [2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20, 23, 24, 25, 26, 27, 30]),
        ("FRI-MON", [1, 2, 6, 7, 8, 9, 13, 14, 15, 16, 20, 21, 22, 23, 27, 28, 29, 30]),
        ("6L", [27]),
        ("monL", [30]),
        ("2#3", [16]),
        ("SUN#5", [29]),
        ("TUE#5", []),
    ],
)
def test_days_of_the_week_count_from_sunday(field: str, days: list[int]) -> None:
    assert days_of(f"* * {field}") == days


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("L", [30]),
        ("L-3", [27]),
        ("LW", [30]),
        ("31", []),
        ("*/10", [1, 11, 21]),
        # the first is a Sunday, the seventh a Saturday, the fifteenth a Sunday
        ("1W", [2]),
        ("7W", [6]),
        ("15W", [16]),
        ("17W", [17]),
        ("31W", []),
    ],
)
def test_days_of_the_month(field: str, days: list[int]) -> None:
    assert days_of(f"{field} * *") == days


def test_the_closest_weekday_stays_in_its_month() -> None:
    # August 2026 begins on a Saturday; May 2026 ends on a Sunday
    assert days_of("1W * *", month=8) == [3]
    assert days_of("31W * *", month=5) == [29]
    assert days_of("LW * *", month=5) == [29]


def test_the_last_day_knows_leap_years() -> None:
    assert days_of("L * *", year=2028, month=2) == [29]
    assert days_of("L * *", year=2027, month=2) == [28]


def test_of_two_kinds_of_days_either_will_do() -> None:
    assert days_of("2 * SUN") == [1, 2, 8, 15, 22, 29]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
        ("@daily", "has 1 fields"),
        ("60 * * * *", "minute '60'"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day of the month '0'"),
        ("* * 32 * *", "day of the month '32'"),
        ("* * * 13 *", "month '13'"),
        ("* * * FOO *", "month 'FOO'"),
        ("* * * * 0", "day of the week '0'"),
        ("* * * * 8", "day of the week '8'"),
        ("* * * * 2#6", "day of the week '6'"),
        ("*/0 * * * *", "step"),
        ("*/60 * * * *", "step"),
        ("1- * * * *", "minute ''"),
        ("-1 * * * *", "minute ''"),
        ("1,,2 * * * *", "minute ''"),
        ("\u0661 * * * *", "minute"),
        ("* * 15,L * *", "day of the month 'L'"),
        ("* * L-31 * *", "before the last"),
        ("* * * * 2,3#1", "day of the week"),
        ("* " * 100, "longer than"),
    ],
)
def test_what_is_no_expression_is_refused_by_field(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(text)
    assert reason in str(refused.value)


def test_spaces_do_not_count() -> None:
    assert parse_cron("  */5  *\t* * * ").text == "*/5 * * * *"
