"""Cron expressions as Cloudflare reads them: five fields, in UTC.

| field | values | besides `*`, `,`, `-` and `/` |
|---|---|---|
| minute | 0-59 | |
| hour | 0-23 | |
| day of the month | 1-31 | `L` the last, `L-3` three before it, `LW` the last weekday, `15W` the weekday closest to it |
| month | 1-12, JAN-DEC | |
| day of the week | **1-7 from Sunday**, SUN-SAT | `L` Saturday, `6L` the month's last Friday, `2#3` its third Monday |

A range may go past the end (`FRI-MON`, `22-2`). Where both days are given, either will do. Other dialects
count days of the week from 0; a library that reads them so would run `* * * * 1` on Mondays.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from types import MappingProxyType

from tenantry_runtime.errors import InvalidInput

MAX_CHARS = 128

_MONTHS = MappingProxyType(
    {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
)
_WEEKDAYS = MappingProxyType(
    {
        name: number
        for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), start=1)
    }
)

_SATURDAY = 7

DayTest = Callable[[date], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class CronExpression:
    """When something is due, to the minute."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    is_day: DayTest

    def is_due(self, unix_minute: int) -> bool:
        """Say whether it is due in a minute since 1970."""
        moment = datetime.fromtimestamp(unix_minute * 60, UTC)
        return (
            moment.minute in self.minutes
            and moment.hour in self.hours
            and moment.month in self.months
            and self.is_day(moment.date())
        )


def parse_cron(text: str) -> CronExpression:
    """Read an expression; raise `InvalidInput`, which says what is wrong with which field."""
    if len(text) > MAX_CHARS:
        raise _invalid(text, f"is longer than {MAX_CHARS} characters")
    fields = text.split()
    if len(fields) != 5:
        problem = "minute, hour, day of the month, month and day of the week, as in */5 * * * *"
        raise _invalid(text, f"has {len(fields)} fields, not five: {problem}")
    minute, hour, day, month, weekday = fields
    return CronExpression(
        text=" ".join(fields),
        minutes=_Field(text, "minute", 0, 59).values(minute),
        hours=_Field(text, "hour", 0, 23).values(hour),
        months=_Field(text, "month", 1, 12, _MONTHS).values(month),
        is_day=_either(
            None if day == "*" else _month_days(text, day),
            None if weekday == "*" else _week_days(text, weekday),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Field:
    text: str
    name: str
    first: int
    last: int
    names: Mapping[str, int] = field(default_factory=dict)

    def values(self, written: str) -> frozenset[int]:
        """Return what a list of values, ranges and steps holds."""
        return frozenset(value for part in written.split(",") for value in self._part(part))

    def number(self, part: str) -> int:
        value = self.names.get(part.upper())
        if value is None:
            value = int(part) if part.isascii() and part.isdecimal() and len(part) <= 2 else -1
            if not self.first <= value <= self.last:
                allowed = f"{self.first} to {self.last}"
                if self.names:
                    allowed += f", or {next(iter(self.names))} and the like"
                raise self.problem(part, f"is not {allowed}")
        return value

    def problem(self, part: str, what: str) -> InvalidInput:
        return _invalid(self.text, f"the {self.name} {part!r} {what}")

    def _part(self, part: str) -> list[int]:
        span, slash, step_text = part.partition("/")
        step = 1
        if slash:
            is_number = step_text.isascii() and step_text.isdecimal() and len(step_text) <= 2
            step = int(step_text) if is_number else 0
            if not 1 <= step <= self.last:
                raise self.problem(part, f"has a step that is not 1 to {self.last}")
        if span == "*":
            return list(range(self.first, self.last + 1, step))
        begin_text, dash, end_text = span.partition("-")
        begin = self.number(begin_text)
        if not dash:
            return list(range(begin, self.last + 1, step)) if slash else [begin]
        end = self.number(end_text)
        if begin <= end:
            return list(range(begin, end + 1, step))
        size = self.last - self.first + 1
        around = range(begin, end + size + 1, step)
        return [(value - self.first) % size + self.first for value in around]


def _either(month_days: DayTest | None, week_days: DayTest | None) -> DayTest:
    if month_days is None or week_days is None:
        return month_days or week_days or (lambda day: True)
    return lambda day: month_days(day) or week_days(day)


def _month_days(text: str, written: str) -> DayTest:
    days = _Field(text, "day of the month", 1, 31)
    if (
        last := re.fullmatch(r"L(?:-(\d{1,2}))?(W)?", written, re.ASCII | re.IGNORECASE)
    ) is not None:
        before = int(last[1] or 0)
        if before > 30:
            raise days.problem(written, "is more than 30 days before the last")
        if last[2]:
            return lambda day: day == _closest_weekday(day, _num_days(day) - before)
        return lambda day: day.day == _num_days(day) - before
    if written.upper().endswith("W"):
        wanted = days.number(written[:-1])
        return lambda day: day == _closest_weekday(day, wanted)
    chosen = days.values(written)
    return lambda day: day.day in chosen


def _week_days(text: str, written: str) -> DayTest:
    days = _Field(text, "day of the week", 1, 7, _WEEKDAYS)
    if written.upper() == "L":
        return lambda day: _weekday(day) == _SATURDAY
    name, mark, place_text = written.partition("#")
    if mark:
        wanted, place = days.number(name), _Field(text, "day of the week", 1, 5).number(place_text)
        return lambda day: _weekday(day) == wanted and (day.day - 1) // 7 + 1 == place
    if written[-1:] in "lL":
        wanted = days.number(written[:-1])
        return lambda day: _weekday(day) == wanted and day.day + 7 > _num_days(day)
    chosen = days.values(written)
    return lambda day: _weekday(day) in chosen


def _weekday(day: date) -> int:
    return day.isoweekday() % 7 + 1


def _num_days(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _closest_weekday(day: date, wanted: int) -> date | None:
    """Return the weekday of a day's month that is closest to one of its days; None where it lacks that."""
    num_days = _num_days(day)
    if not 1 <= wanted <= num_days:
        return None
    closest = day.replace(day=wanted)
    match closest.isoweekday():
        case 6:
            return day.replace(day=wanted - 1 if wanted > 1 else 3)
        case 7:
            return day.replace(day=wanted + 1 if wanted < num_days else wanted - 2)
        case _:
            return closest


def _invalid(text: str, reason: str) -> InvalidInput:
    return InvalidInput("cron", f"{text[:MAX_CHARS]!r}: {reason}")
