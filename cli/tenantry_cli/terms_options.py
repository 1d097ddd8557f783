"""The options by which a plan's terms are given, and a tenant's exceptions from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import click

from .installed import runtime_imports

T = TypeVar("T")


class Word(Enum):
    """What a limit may be instead of a number."""

    UNLIMITED = "unlimited"
    AS_PLAN = "plan"
    """As the tenant's plan has it."""


Value: TypeAlias = int | float | Word


class Limit(click.ParamType[Value]):
    """A number in a range, or one of some words."""

    name = "limit"

    def __init__(
        self, number: type[int] | type[float], *, low: float, words: tuple[Word, ...]
    ) -> None:
        self._number = number
        self._low = low
        self._words = words

    # Any: as click has it
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Value:
        for word in self._words:
            if value == word.value:
                return word
        try:
            number = self._number(value)
        except (ValueError, OverflowError):
            number = None
        # a NaN is not equal to itself, and infinity is called unlimited
        if number is None or not self._low <= number < float("inf"):
            noun = "a whole number" if self._number is int else "a number"
            others = "".join(f", or {word.value}" for word in self._words)
            self.fail(f"{value!r} is not {noun} from {self._low:g} up{others}", param, ctx)
        return number


QUOTAS: Mapping[str, tuple[float, str]] = {
    "requests_per_minute": (1, "Requests per minute, of each model."),
    "tokens_per_minute": (1, "Tokens per minute, of each model: prompts and answers."),
    "concurrent_requests": (1, "Requests at one time, of each model."),
    "queue_depth": (0, "Requests that may wait for their turn on one member."),
    "context_tokens": (1, "Tokens of one prompt and its answer, where the model takes more."),
}
"""Options that are of a model if one is named: the least value, and the help."""

SHARES: Mapping[str, str] = {
    "weight": "Service for each unit of a tenant of weight 1, while both have work.",
    "guaranteed": "Share of every pool, 0 to 1, that is there when asked for.",
    "ceiling": "Share of every pool, 0 to 1, that is never exceeded.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTerms:
    """What a command line says of terms."""

    values: Mapping[str, Value]
    """By the option's name; only those that are given."""
    model: str | None
    dropped: tuple[str, ...]
    """Models that are as the others again."""
    catalog: Path | None

    def changes(self) -> dict[tuple[str, ...], Any]:
        """Return what they change (`tenantry_runtime.tenancy.terms`); models by canonical ids.

        Any: a number, None for no limit, or UNSET.
        """
        from msgspec import UNSET

        model = None if self.model is None else self._canonical(self.model)
        result: dict[tuple[str, ...], Any] = {
            ("models", self._canonical(name)): UNSET for name in self.dropped
        }
        for name, value in self.values.items():
            change = value
            if isinstance(value, Word):
                result[self._path(name, model)] = None if value is Word.UNLIMITED else UNSET
            else:
                result[self._path(name, model)] = change
        return result

    @property
    def concerns_guarantees(self) -> bool:
        return "guaranteed" in self.values

    def _path(self, name: str, model: str | None) -> tuple[str, ...]:
        if name in QUOTAS:
            return ("quota", name) if model is None else ("models", model, name)
        if model is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is of all models; leave out --model"
            )
        return ("share", name) if name in SHARES else (name,)

    def _canonical(self, name: str) -> str:
        with runtime_imports():
            from tenantry_runtime.catalog import load_catalog
            from tenantry_runtime.errors import ConfigurationError, UnknownModel

        # limits of a name that no model has would hold nobody
        try:
            return load_catalog(self.catalog).resolve(name).id
        except UnknownModel as error:
            where = self.catalog or "the built-in catalog; --catalog names another"
            raise click.ClickException(f"{error} (in {where})") from error
        except ConfigurationError as error:
            raise click.ClickException(str(error)) from error


def terms_options(
    whose: Literal["plan", "tenant"],
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add all of them to a command, which gets `given`, a `GivenTerms`."""
    words = (Word.UNLIMITED, Word.AS_PLAN) if whose == "tenant" else (Word.UNLIMITED,)
    of_shares = words[1:]

    def add(command: Callable[..., T]) -> Callable[..., T]:
        # Any: as click calls it, by the names of its options
        def gather(
            *args: Any,
            model: str | None,
            drop_model: tuple[str, ...],
            catalog: Path | None,
            **options: Any,
        ) -> T:
            names = [name for name in options if name in (*QUOTAS, *SHARES, "daily_neurons")]
            taken = {name: options.pop(name) for name in names}
            values = {name: value for name, value in taken.items() if value is not None}
            if model is not None and not values:
                raise click.UsageError("--model needs a limit of it, as --requests-per-minute")
            given = GivenTerms(values=values, model=model, dropped=drop_model, catalog=catalog)
            return command(*args, given=given, **options)

        decorated: Callable[..., T] = functools.wraps(command)(gather)
        for decorate in reversed([*_quota_options(words), *_share_options(of_shares), *_models()]):
            decorated = decorate(decorated)
        return decorated

    return add


def _quota_options(words: tuple[Word, ...]) -> list[Callable[[Callable[..., T]], Callable[..., T]]]:
    options = [
        _option(name, Limit(int, low=low, words=words), text)
        for name, (low, text) in QUOTAS.items()
    ]
    neurons = "Neurons from midnight to midnight UTC, of all models together."
    return [*options, _option("daily_neurons", Limit(float, low=0, words=words), neurons)]


def _share_options(words: tuple[Word, ...]) -> list[Callable[[Callable[..., T]], Callable[..., T]]]:
    return [_option(name, Limit(float, low=0, words=words), text) for name, text in SHARES.items()]


def _option(name: str, type_: Limit, text: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    return click.option(f"--{name.replace('_', '-')}", type=type_, metavar="N", help=text)


def _models() -> list[Callable[[Callable[..., T]], Callable[..., T]]]:
    return [
        click.option("--model", help="The model that the limits are for; default: all."),
        click.option("--drop-model", multiple=True, help="A model that is to be as the others."),
        click.option(
            "--catalog",
            type=click.Path(dir_okay=False, exists=True, path_type=Path),
            help="JSON file of the models that may be named; default: the built-in catalog.",
        ),
    ]
