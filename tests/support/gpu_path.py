"""The GPU's path: on a machine without a GPU, CPU tensors and Triton's kernels in its interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch

from support import interpreter
from support.latent_pages import DEVICE
from tenantry_kernels import choice


@contextmanager
def gpu_path() -> Iterator[None]:
    """Let tensors on `DEVICE` be served by what serves those on a GPU, while it lasts."""
    if DEVICE == "cuda":
        yield
        return
    interpreter.mend()

    def kind_of(device: torch.device) -> str:
        return "cuda" if device.type == "cpu" else device.type

    with mock.patch.object(choice, "kind_of", kind_of):
        yield
