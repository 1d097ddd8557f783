"""What an edge sees of one sequence on its way, by its own clock. Becomes spans and events at the end.

Written down as it happens, so that a request which fails has the stages that it came through. Costs a
few appends a request, whether or not anybody traces it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tenantry_runtime.core import Phase

Attributes: TypeAlias = Mapping[str, str | int | float | bool]

MAX_NOTES = 64
"""Stages, and events, of one sequence: one that is preempted again and again has more than tell anything."""


class Stage(NamedTuple):
    name: str
    started_ns: int
    ended_ns: int
    attributes: Attributes


class Happened(NamedTuple):
    name: str
    time_ns: int
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTold:
    """A member, as a trace names it."""

    name: str
    weights_format: str
    cache_format: str
    is_checked: bool
    """Whether each of its uses of pages is behind the check."""

    @property
    def formats(self) -> str:
        return f"{self.weights_format}/{self.cache_format}"


@dataclass(slots=True, eq=False)
class Journey:
    """Times are Unix time in nanoseconds, unless they say otherwise."""

    members: dict[Phase, MemberTold] = field(default_factory=dict)
    """Of the latest attempt."""
    stages: list[Stage] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    first_token_s: float | None = None
    """On this process's own clock, `time.perf_counter`."""
    num_resubmitted: int = 0
    """Preemptions after which it was submitted again."""
    num_retries: int = 0
    has_mismatch: bool = False
    """Whether a page that was not its own has ended an attempt."""

    @contextmanager
    def stage(self, name: str, attributes: dict[str, str | int | float | bool]) -> Iterator[None]:
        """Note a stage, however it ends; what is put into `attributes` meanwhile is noted too."""
        started_ns = time.time_ns()
        try:
            yield
        finally:
            self.past(name, started_ns, attributes)

    def past(self, name: str, started_ns: int, attributes: Attributes | None = None) -> None:
        """Note a stage that ends now."""
        if len(self.stages) < MAX_NOTES:
            self.stages.append(Stage(name, started_ns, time.time_ns(), attributes or {}))

    def event(self, name: str, attributes: Attributes) -> None:
        if len(self.happened) < MAX_NOTES:
            self.happened.append(Happened(name, time.time_ns(), attributes))

    def has_token(self) -> None:
        """The first token is here."""
        if self.first_token_s is None:
            self.first_token_s = time.perf_counter()
