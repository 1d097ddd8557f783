"""One op at one shape: how to make inputs, run it, and judge what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .work import Work

Run = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An op with fresh inputs on a device."""

    run: Run
    """May be called again and again, and captured in a CUDA graph."""
    error: Callable[[], float]
    """Run it and compare with the reference; 0 is equal."""
    tolerance: float
    work: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is measured."""

    op: str
    model: str
    shape: str
    build: Callable[[Source], Trial]
    goal: float | None = None
    """Fraction of the copy bandwidth that is aimed at."""

    def __str__(self) -> str:
        return f"{self.op}, {self.model}, {self.shape}"


class Source:
    """Fresh random inputs on a device."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.device = device
        self._generator = torch.Generator(device).manual_seed(seed)

    def normal(
        self, *shape: int, size: float = 1.0, dtype: torch.dtype = torch.bfloat16
    ) -> torch.Tensor:
        values = torch.randn(shape, generator=self._generator, device=self.device)
        return (values * size).to(dtype)

    def integers(
        self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64
    ) -> torch.Tensor:
        """Return integers in low..high - 1."""
        return torch.randint(
            low, high, shape, generator=self._generator, device=self.device, dtype=dtype
        )

    def permutation(self, count: int) -> torch.Tensor:
        return torch.randperm(count, generator=self._generator, device=self.device)

    def choices(self, num_rows: int, num_choices: int, count: int) -> torch.Tensor:
        """Return distinct numbers below `count`, int64 [rows, choices]."""
        scores = torch.rand(num_rows, count, generator=self._generator, device=self.device)
        return scores.topk(num_choices, -1).indices


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error over the largest value; infinite where one is no number."""
    error = (actual.float() - expected.float()).abs().max() / expected.float().abs().max()
    return error.nan_to_num(nan=torch.inf).item()


def differing(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the fraction of values that are not equal."""
    return (actual != expected).double().mean().item()
