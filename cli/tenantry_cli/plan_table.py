"""A member's plan, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from .tables import columns

if TYPE_CHECKING:
    from tenantry_runtime.models.plan import MemberPlan
    from tenantry_runtime.models.sizes import WeightFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """What was asked, and what fits."""

    model: str
    gpu: str
    num_gpus: int
    weights: WeightFormat
    cache: str
    memory_fraction: float
    plan: MemberPlan
    sequences: Mapping[int, int]
    """How many of each length in tokens."""

    def table(self) -> str:
        """Return lines: what is planned, what it takes, how many sequences fit."""
        plan = self.plan
        facts = [
            (
                "weights",
                f"{_gib(plan.model_weight_bytes)}, {_gib(plan.gpu_weight_bytes)} per GPU "
                f"(experts {self.weights.experts}, rest {self.weights.rest})",
            ),
            (
                "cache",
                f"{_gib(plan.gpu_cache_bytes)} per GPU, "
                f"{plan.bytes_per_token:,} bytes per token ({self.cache})",
            ),
            ("pages", f"{plan.num_pages:,}"),
            ("tokens", f"{plan.num_tokens:,}"),
        ]
        counts = [(f"{length:,}", f"{count:,}") for length, count in self.sequences.items()]
        title = f"{self.model} on {self.num_gpus} x {self.gpu}, {self.memory_fraction:g} of their memory"
        return "\n\n".join(
            (
                title,
                columns(facts, right_aligned=set()),
                columns([("LENGTH", "SEQUENCES"), *counts], right_aligned={0, 1}),
            )
        )

    def json(self) -> str:
        """Return one JSON object; sizes in bytes."""
        plan = self.plan
        fields = {
            "model": self.model,
            "gpu": self.gpu,
            "num_gpus": self.num_gpus,
            "weights": {"experts": self.weights.experts, "rest": self.weights.rest},
            "cache": self.cache,
            "memory_fraction": self.memory_fraction,
            "model_weight_bytes": plan.model_weight_bytes,
            "gpu_weight_bytes": plan.gpu_weight_bytes,
            "gpu_cache_bytes": plan.gpu_cache_bytes,
            "bytes_per_token": plan.bytes_per_token,
            "num_pages": plan.num_pages,
            "num_tokens": plan.num_tokens,
            "sequences": [
                {"length_tokens": length, "num_sequences": count}
                for length, count in self.sequences.items()
            ],
        }
        return msgspec.json.format(msgspec.json.encode(fields)).decode()


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB"
