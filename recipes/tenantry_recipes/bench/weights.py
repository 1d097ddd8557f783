"""The weights that one decode step must read, whatever the engine."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenantry_runtime.models.config import MoeConfig

_EXPERT = re.compile(r".*\.mlp\.experts\.\d+\..*")
_EMBEDDING = "model.embed_tokens.weight"
"""Of which a step reads one row per token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCounts:
    """How many weights a decoder has, by when they are read."""

    num_always: int
    """Read in every step."""
    num_expert: int
    """Of all routed experts in all layers."""
    num_experts: int
    """In one layer."""
    num_experts_per_token: int

    @classmethod
    def of(cls, directory: Path, moe: MoeConfig) -> WeightCounts:
        """Count the weights of an export."""
        shapes = _shapes(directory / "model.safetensors")
        sizes = {name: math.prod(shape) for name, shape in shapes.items() if name != _EMBEDDING}
        num_expert = sum(size for name, size in sizes.items() if _EXPERT.fullmatch(name))
        return cls(
            num_always=sum(sizes.values()) - num_expert,
            num_expert=num_expert,
            num_experts=moe.num_experts,
            num_experts_per_token=moe.num_experts_per_token,
        )

    def per_step(self, num_rows: int) -> float:
        """Return how many a step of so many rows reads, if routers choose experts evenly."""
        share_left_out = 1 - self.num_experts_per_token / self.num_experts
        return self.num_always + self.num_expert * (1 - share_left_out**num_rows)


def _shapes(path: Path) -> dict[str, list[int]]:
    with path.open("rb") as file:
        header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
