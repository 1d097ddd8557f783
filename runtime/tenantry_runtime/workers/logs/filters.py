"""Which invocations a tail asks for; all of its filters must agree."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tenantry_runtime.errors import InvalidInput
from tenantry_runtime.workers.interface import Record
from tenantry_runtime.workers.outcome import Outcome

MAX_FILTERS = 20

SELF = "self"
"""Among addresses: that of whoever asks."""

UNKNOWN = "unknown"
"""Among outcomes: those that Cloudflare has no word for; wrangler asks for it with `--status error`."""

CLOUDFLARE: frozenset[str] = frozenset(
    {
        Outcome.OK,
        Outcome.EXCEPTION,
        Outcome.CANCELED,
        Outcome.EXCEEDED_CPU,
        Outcome.EXCEEDED_MEMORY,
    }
)


class HeaderFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A header that a request has, and what its value holds."""

    key: str
    query: str | None = None


class _Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One element of `filters`, which has one of the fields."""

    sampling_rate: float | None = None
    outcome: tuple[str, ...] | None = None
    method: tuple[str, ...] | None = None
    header: HeaderFilter | None = None
    client_ip: tuple[str, ...] | None = None
    query: str | None = None
    script_version: str | None = msgspec.field(default=None, name="scriptVersion")


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFilters:
    """What there is of one tail's filters."""

    sampling_rate: float = 1.0
    outcomes: frozenset[str] | None = None
    methods: frozenset[str] | None = None
    headers: tuple[HeaderFilter, ...] = ()
    client_ips: frozenset[str] | None = None
    search: str | None = None
    version_id: str | None = None

    def match(self, record: Record, *, draw: Callable[[], float] = random.random) -> bool:
        """Say whether a record is asked for; `draw` returns a number of [0, 1)."""
        return (
            (self.version_id is None or record.version.version_id == self.version_id)
            and (self.outcomes is None or has_outcome(record.outcome, self.outcomes))
            and (self.methods is None or record.event.method.upper() in self.methods)
            and (self.client_ips is None or record.invocation.client_ip in self.client_ips)
            and all(_has_header(record, header) for header in self.headers)
            and (self.search is None or _says(record, self.search))
            and (self.sampling_rate >= 1.0 or draw() < self.sampling_rate)
        )


# Any: JSON as the client has it
def read_filters(filters: Sequence[Mapping[str, Any]], *, client_ip: str) -> TailFilters:
    """Read what a tail asks for, in Cloudflare's form; `client_ip` is who `self` is.

    Raises `InvalidInput`.
    """
    try:
        asked = msgspec.convert(filters, tuple[_Filter, ...])
    except msgspec.ValidationError as error:
        raise InvalidInput("filters", str(error)) from error
    if len(asked) > MAX_FILTERS:
        raise InvalidInput("filters", f"must be at most {MAX_FILTERS}")
    rates = [each.sampling_rate for each in asked if each.sampling_rate is not None]
    if any(not 0 < rate <= 1 for rate in rates):
        raise InvalidInput("sampling_rate", "must be over 0, and 1 at most")
    ips = _all(asked, lambda each: each.client_ip)
    return TailFilters(
        sampling_rate=min(rates, default=1.0),
        outcomes=_all(asked, lambda each: each.outcome),
        methods=_all(asked, lambda each: each.method, str.upper),
        headers=tuple(each.header for each in asked if each.header is not None),
        client_ips=None
        if ips is None
        else frozenset(client_ip if address == SELF else address for address in ips),
        search=next((each.query for each in asked if each.query), None),
        version_id=next((each.script_version for each in asked if each.script_version), None),
    )


def _all(
    asked: Sequence[_Filter],
    part: Callable[[_Filter], tuple[str, ...] | None],
    form: Callable[[str], str] = str,
) -> frozenset[str] | None:
    found = [values for each in asked if (values := part(each))]
    return frozenset(form(value) for values in found for value in values) if found else None


def has_outcome(outcome: str, asked: frozenset[str]) -> bool:
    """Say whether an outcome is among those that are asked for."""
    return outcome in asked or (outcome not in CLOUDFLARE and UNKNOWN in asked)


def _has_header(record: Record, asked: HeaderFilter) -> bool:
    key = asked.key.lower()
    return any(
        name == key and (not asked.query or asked.query in value)
        for name, value in record.event.headers
    )


def _says(record: Record, text: str) -> bool:
    return any(text in line.text for line in record.logs) or any(
        text in error.message or text in error.stack for error in record.errors
    )
