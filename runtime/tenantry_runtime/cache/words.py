"""Fields of several shapes in one run of int64 words, so that one copy brings them to the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

# kernels load 16 bytes at a time where fields begin at such multiples, on whatever step
_ALIGNED_WORDS = 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each field lies."""

    shapes: Mapping[str, tuple[int, ...]]
    offsets: Mapping[str, int]
    num_words: int

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> Layout:
        """Lay fields out one after another."""
        offsets, end = {}, 0
        for name, shape in shapes.items():
            offsets[name] = end
            end += -(-prod(shape) // _ALIGNED_WORDS) * _ALIGNED_WORDS
        return cls(shapes, offsets, end)

    def host(self) -> NDArray[np.int64]:
        """Return zeros for all fields."""
        return np.zeros(self.num_words, np.int64)

    def fields(self, words: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the fields as views of words on the host."""
        return {
            name: words[offset : offset + prod(self.shapes[name])].reshape(self.shapes[name])
            for name, offset in self.offsets.items()
        }

    def views(self, words: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the fields as views of words on the device."""
        return {
            name: words[offset : offset + prod(self.shapes[name])].view(self.shapes[name])
            for name, offset in self.offsets.items()
        }


def staged(words: NDArray[np.int64]) -> torch.Tensor:
    """Return words in memory that a GPU copies from by itself; it is not reused before it has.

    Without a GPU they stay where they are.
    """
    tensor = torch.from_numpy(words)
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


def to_device(words: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Return words on the device, without waiting for it."""
    return staged(words).to(device, non_blocking=True)
