"""What the page world is made of: requests, prompts, words of (token, position), slots without a check."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from tenantry_runtime.cache.faults import FaultKind, Holder
from tenantry_runtime.cache.owners import OwnerSlot
from tenantry_runtime.cache.pages import Lease
from tenantry_runtime.core import PAGE_TOKENS


@dataclass(eq=False)
class Request:
    tenant: str
    owner: OwnerSlot
    tokens: list[int]
    num_prompt: int
    lease: Lease
    num_written: int
    damage: FaultKind | None = None
    is_exposed: bool = False
    """Somebody may have written into its pages."""

    @property
    def phase(self) -> str:
        return "prefill" if self.num_written < self.num_prompt else "decode"

    @property
    def holder(self) -> Holder:
        return Holder(self.lease, self.num_written)


def a_prompt(rng: random.Random) -> tuple[int, ...]:
    """Return one of few prompts that begin alike."""
    pages = rng.choice([(0,), (0, 0), (0, 1), (0, 0, 0), (0, 1, 1), (1, 0)])
    return tuple(v for v in pages for _ in range(PAGE_TOKENS)) + (7,) * rng.choice([0, 1, 40])


def words_of(tokens: list[int], start: int, end: int) -> torch.Tensor:
    position = torch.arange(start, end)
    return torch.tensor(tokens[start:end], dtype=torch.int64) << 32 | position


def raw_slots(lease: Lease, positions: range) -> torch.Tensor:
    return torch.tensor(
        [lease.indices[p // PAGE_TOKENS] * PAGE_TOKENS + p % PAGE_TOKENS for p in positions],
        dtype=torch.int64,
    )
