"""Named values with a JSON type: what tools take and schemas ask for, and how people say them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .task import Draw
from .words import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLORS,
    DAYS,
    DIGITS,
    FOODS,
    JOBS,
    LETTERS,
    NAMES,
    OBJECTS,
    enumerated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of value, under any of several names."""

    names: tuple[str, ...]
    description: str
    schema: dict[str, Any]
    make: Callable[[Draw], object]
    clause: str
    """How a request says it; `{v}` is the value, `{n}` the name."""
    clause_false: str = ""
    """The same for a boolean that is false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A kind under one name."""

    name: str
    kind: Kind

    def schema(self, *, described: bool) -> dict[str, Any]:
        note = {"description": self.kind.description} if described else {}
        return {**self.kind.schema, **note}

    def natural(self, value: object) -> str:
        """Say the value as part of a request."""
        form = self.kind.clause_false if value is False else self.kind.clause
        return form.format(n=_spoken(self.name), v=said(value))

    def explicit(self, value: object) -> str:
        """Say name and value."""
        return f"{_spoken(self.name)} {said(value)}"

    def sentence(self, value: object) -> str:
        """State the value by itself."""
        match value:
            case bool():
                return f"It is {'' if value else 'not '}{_spoken(self.name)}."
            case list():
                return f"The {_spoken(self.name)} are {said(value)}."
            case _:
                return f"The {_spoken(self.name)} is {said(value)}."


def said(value: object) -> str:
    """Write a value as prose does."""
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return enumerated([str(each) for each in value])
        case _:
            return str(value)


def draw_fields(draw: Draw, count: int) -> list[Field]:
    """Draw kinds, none twice, each under one of its names."""
    return [Field(name=draw.choice(kind.names), kind=kind) for kind in draw.sample(KINDS, count)]


def short_code(draw: Draw) -> str:
    """Draw an id: letter, digit, letter, digit."""
    letters = LETTERS if draw.has_random_letters else DIGITS
    return "".join(draw.choice(pool) for pool in (letters, DIGITS, letters, DIGITS))


def _one_of(options: Sequence[str]) -> Callable[[Draw], object]:
    return lambda draw: draw.choice(options)


def _number(low: int, high: int) -> Callable[[Draw], object]:
    return lambda draw: draw.between(low, high)


def _some_of(options: Sequence[str]) -> Callable[[Draw], object]:
    return lambda draw: draw.sample(options, draw.between(1, 3))


def _flag(draw: Draw) -> object:
    return draw.chance(0.5)


def _enum(options: Sequence[str]) -> dict[str, Any]:
    return {"type": "string", "enum": list(options)}


_STRING: dict[str, Any] = {"type": "string"}
_INTEGER: dict[str, Any] = {"type": "integer"}
_BOOLEAN: dict[str, Any] = {"type": "boolean"}
_STRINGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
_SIZES = ("small", "medium", "large")
_LEVELS = ("low", "normal", "high")
_UNITS = ("meters", "miles", "feet")
_SEASONS = ("spring", "summer", "autumn", "winter")

KINDS: tuple[Kind, ...] = (
    Kind(
        names=("city", "town", "place", "location"),
        description="Name of the city",
        schema=_STRING,
        make=_one_of(CITIES),
        clause="in {v}",
    ),
    Kind(
        names=("person", "name", "user", "customer"),
        description="Name of the person",
        schema=_STRING,
        make=_one_of(NAMES),
        clause="for {v}",
    ),
    Kind(
        names=("day", "date", "weekday"),
        description="Day of the week",
        schema=_STRING,
        make=_one_of(DAYS),
        clause="on {v}",
    ),
    Kind(
        names=("food", "meal", "dish"),
        description="What to eat",
        schema=_STRING,
        make=_one_of(FOODS),
        clause="with the {n} {v}",
    ),
    Kind(
        names=("job", "role"),
        description="What the person does",
        schema=_STRING,
        make=_one_of(JOBS),
        clause="with the {n} {v}",
    ),
    Kind(
        names=("landmark", "target"),
        description="An object near by",
        schema=_STRING,
        make=_one_of(OBJECTS),
        clause="near the {v}",
    ),
    Kind(
        names=("code", "key", "token"),
        description="A short code",
        schema=_STRING,
        make=short_code,
        clause="with the {n} {v}",
    ),
    Kind(
        names=("count", "amount", "quantity"),
        description="How many",
        schema=_INTEGER,
        make=_number(2, 99),
        clause="with a {n} of {v}",
    ),
    Kind(
        names=("guests", "seats"),
        description="Number of people",
        schema=_INTEGER,
        make=_number(2, 30),
        clause="for {v} {n}",
    ),
    Kind(
        names=("price", "budget", "cost"),
        description="In dollars",
        schema=_INTEGER,
        make=_number(5, 900),
        clause="for {v} dollars",
    ),
    Kind(
        names=("minutes", "duration"),
        description="Time in minutes",
        schema=_INTEGER,
        make=_number(5, 120),
        clause="for {v} minutes",
    ),
    Kind(
        names=("floor", "level", "page"),
        description="A number from 1",
        schema=_INTEGER,
        make=_number(1, 40),
        clause="on {n} {v}",
    ),
    Kind(
        names=("urgent",),
        description="Whether it is urgent",
        schema=_BOOLEAN,
        make=_flag,
        clause="and it is urgent",
        clause_false="and it is not urgent",
    ),
    Kind(
        names=("outdoor", "outside"),
        description="Whether it is outside",
        schema=_BOOLEAN,
        make=_flag,
        clause="and it is {n}",
        clause_false="and it is not {n}",
    ),
    Kind(
        names=("private", "secret"),
        description="Whether it is hidden",
        schema=_BOOLEAN,
        make=_flag,
        clause="and it is {n}",
        clause_false="and it is not {n}",
    ),
    Kind(
        names=("size",),
        description="One of three sizes",
        schema=_enum(_SIZES),
        make=_one_of(_SIZES),
        clause="in {n} {v}",
    ),
    Kind(
        names=("priority", "importance"),
        description="How important it is",
        schema=_enum(_LEVELS),
        make=_one_of(_LEVELS),
        clause="with {v} {n}",
    ),
    Kind(
        names=("unit", "units"),
        description="Unit of length",
        schema=_enum(_UNITS),
        make=_one_of(_UNITS),
        clause="in {v}",
    ),
    Kind(
        names=("season",),
        description="Part of the year",
        schema=_enum(_SEASONS),
        make=_one_of(_SEASONS),
        clause="in {v}",
    ),
    Kind(
        names=("color", "paint"),
        description="Name of a color",
        schema=_STRING,
        make=_one_of(COLORS),
        clause="in {v}",
    ),
    Kind(
        names=("tags", "labels"),
        description="Words to find it by",
        schema=_STRINGS,
        make=_some_of(ADJECTIVES),
        clause="with the {n} {v}",
    ),
    Kind(
        names=("members", "friends", "people"),
        description="Names of people",
        schema=_STRINGS,
        make=_some_of(NAMES),
        clause="with the {n} {v}",
    ),
    Kind(
        names=("animals", "pets"),
        description="Names of animals",
        schema=_STRINGS,
        make=_some_of(ANIMALS),
        clause="with the {n} {v}",
    ),
)


def _spoken(name: str) -> str:
    return name.replace("_", " ")
