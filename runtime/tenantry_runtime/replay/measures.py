"""What a replay measures of each request, and what it says of all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

PERCENTS = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One request that was answered in full. Times are seconds of one clock."""

    number: int
    """In the trace."""
    num_prompt: int
    num_cached: int
    num_output: int
    sent_s: float
    first_token_s: float
    last_token_s: float

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.first_token_s - self.sent_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where there is only one."""
        if self.num_output < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (self.num_output - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All requests of one replay that were answered in full."""

    num_requests: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    duration_s: float
    """From the first request to the last token."""
    ttft_s: tuple[float, ...] | None
    """Its `PERCENTS`; None where nothing was measured."""
    tpot_s: tuple[float, ...] | None

    @property
    def hit_rate(self) -> float:
        """Cached tokens of all prompt tokens."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0

    @property
    def prompt_tokens_per_s(self) -> float:
        return self.num_prompt_tokens / self.duration_s if self.duration_s else 0.0

    @property
    def output_tokens_per_s(self) -> float:
        return self.num_output_tokens / self.duration_s if self.duration_s else 0.0


def summary(requests: Collection[Measured]) -> Summary:
    """Sum up; tokens of requests that failed are not in it."""
    tpots = [tpot_s for request in requests if (tpot_s := request.tpot_s) is not None]
    return Summary(
        num_requests=len(requests),
        num_prompt_tokens=sum(request.num_prompt for request in requests),
        num_cached_tokens=sum(request.num_cached for request in requests),
        num_output_tokens=sum(request.num_output for request in requests),
        duration_s=max((request.last_token_s for request in requests), default=0.0)
        - min((request.sent_s for request in requests), default=0.0),
        ttft_s=_percentiles([request.ttft_s for request in requests]),
        tpot_s=_percentiles(tpots),
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which `percent` of them lie, between two of them by their distance."""
    if not values:
        raise ValueError("no values have no percentile")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _percentiles(values: Sequence[float]) -> tuple[float, ...] | None:
    return tuple(percentile(values, percent) for percent in PERCENTS) if values else None
