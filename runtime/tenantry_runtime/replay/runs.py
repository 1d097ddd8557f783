"""One replay after it is over, and how it is printed as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .measures import PERCENTS, Measured, summary
from .simulation import MemberUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Of what a replay was: numbers of one say nothing about another."""

    routing: str | None = None
    """None: a running system, which routes as it does."""
    num_prefill: int | None = None
    num_decode: int | None = None
    cache_tokens: int | None = None
    """Of each prefill member; None where it is not known, or has no end."""
    scale: int = 1
    speed: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A replay's setting and outcome."""

    setting: Setting
    requests: tuple[Measured, ...] = ()
    hits: tuple[int, int] | None = None
    """Prompt tokens and cached ones, where no requests were timed."""
    prefill: tuple[MemberUse, ...] = ()
    num_preemptions: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    num_late: int = 0
    latest_s: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Cached tokens of all prompt tokens."""
        if self.hits is not None:
            num_prompt, num_cached = self.hits
            return num_cached / num_prompt if num_prompt else 0.0
        return summary(self.requests).hit_rate

    @property
    def imbalance(self) -> float | None:
        """Computing time of the busiest prefill member, in averages."""
        total_s = sum(use.busy_s for use in self.prefill)
        if not total_s:
            return None
        return max(use.busy_s for use in self.prefill) * len(self.prefill) / total_s

    # Any: JSON
    def as_json(self) -> dict[str, Any]:
        """Return everything but the single requests."""
        whole = summary(self.requests)
        return {
            "routing": self.setting.routing,
            "prefill_members": self.setting.num_prefill,
            "decode_members": self.setting.num_decode,
            "cache_tokens_per_member": self.setting.cache_tokens,
            "scale": self.setting.scale,
            "speed": self.setting.speed,
            "hit_rate": self.hit_rate,
            "requests": whole.num_requests,
            "prompt_tokens": self.hits[0] if self.hits else whole.num_prompt_tokens,
            "cached_tokens": self.hits[1] if self.hits else whole.num_cached_tokens,
            "output_tokens": whole.num_output_tokens,
            "duration_s": whole.duration_s,
            "prompt_tokens_per_s": whole.prompt_tokens_per_s,
            "output_tokens_per_s": whole.output_tokens_per_s,
            "ttft_s": _by_percent(whole.ttft_s),
            "tpot_s": _by_percent(whole.tpot_s),
            "busiest_of_average": self.imbalance,
            "preemptions": self.num_preemptions,
            "errors": dict(self.errors),
            "late_requests": self.num_late,
            "latest_s": self.latest_s,
            "members": [
                {
                    "requests": use.num_requests,
                    "prompt_tokens": use.num_prompt_tokens,
                    "cached_tokens": use.num_cached_tokens,
                    "busy_s": use.busy_s,
                }
                for use in self.prefill
            ],
        }


def _by_percent(values: tuple[float, ...] | None) -> dict[str, float] | None:
    if values is None:
        return None
    return {f"p{percent}": value for percent, value in zip(PERCENTS, values, strict=True)}
