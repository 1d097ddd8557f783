"""What tensors a model is made of, from its description alone.

A decoder asks for all that it is made of, so none of the names stand here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from tenantry_runtime.models.config import ModelConfig, Shard
from tenantry_runtime.models.decoder import Decoder
from tenantry_runtime.models.linear import Experts, HeadMaps, Linear, Part, Split

Role: TypeAlias = Literal["expert", "matrix", "vector"]
"""A routed expert's matrix; any other that is multiplied by; what is read as it stands."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One tensor, by the name that it has in an unquantized checkpoint."""

    name: str
    shape: tuple[int, ...]
    role: Role


def list_tensors(config: ModelConfig) -> list[Wanted]:
    """Return all tensors of a model in the order in which it is built."""
    source = _ListingSource(config.tensor_prefix)
    Decoder(config, source)
    return source.wanted


class _ListingSource:
    """A weight source without weights: it notes what it is asked for."""

    def __init__(self, prefix: str) -> None:
        self.wanted: list[Wanted] = []
        self._prefix = prefix

    @property
    def shard(self) -> Shard:
        return Shard()

    def tensor(
        self, name: str, shape: tuple[int, ...], *, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        self.wanted.append(Wanted(self._prefix + name, shape, "vector"))
        return torch.empty(shape, dtype=dtype, device="meta")

    def linear(self, parts: Sequence[Part], in_dim: int, split: Split | None = None) -> Linear:
        for part in parts:
            self._note(part.name, part.out_dim, in_dim, "matrix")
        return _never

    def heads(
        self, name: str, num_heads: int, key_dim: int, value_dim: int, in_dim: int
    ) -> HeadMaps:
        rows_per_head = key_dim + value_dim
        self._note(name, num_heads * rows_per_head, in_dim, "matrix")
        return HeadMaps(torch.empty(num_heads, rows_per_head, in_dim, device="meta"), key_dim)

    def experts(
        self, prefix: str, num_experts: int, hidden_dim: int, intermediate_dim: int
    ) -> Experts:
        for e in range(num_experts):
            self._note(f"{prefix}.{e}.gate_proj", intermediate_dim, hidden_dim, "expert")
            self._note(f"{prefix}.{e}.up_proj", intermediate_dim, hidden_dim, "expert")
            self._note(f"{prefix}.{e}.down_proj", hidden_dim, intermediate_dim, "expert")
        return _never

    def _note(self, name: str, out_dim: int, in_dim: int, role: Role) -> None:
        self.wanted.append(Wanted(f"{self._prefix}{name}.weight", (out_dim, in_dim), role))


def _never(*_arguments: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a decoder that is being listed is not run")
