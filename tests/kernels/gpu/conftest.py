"""Kernels run in Triton's interpreter where there is no GPU; what they allocate starts as NaN."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from support import interpreter

if not torch.cuda.is_available():
    interpreter.mend()


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fill what `torch.empty` returns with NaN or the largest integer, so that nobody reads it."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
