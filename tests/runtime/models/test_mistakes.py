"""Each classic mistake changes the logits by far more than the parity tests allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from support.classic_mistakes import FP8_MISTAKES, INT4_MISTAKES, MISTAKES, Patch
from support.paged_batch import PagedRun
from support.quantized_copies import dequantized_copy, fp8_copy, int4_copy
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.models import loader, source

Checkpoints = Callable[[str], TinyCheckpoint]

TOLERANCE = 2e-5
"""What the parity tests allow."""
CLEAR = 100 * TOLERANCE
# the inner norms' epsilon is 1e-6 or 1e-5 next to squares near 1
BARELY_VISIBLE = {"inner norms with the model's epsilon": 2 * TOLERANCE}

CASES = [
    pytest.param(name, checkpoint, patch, id=f"{name}-{checkpoint}")
    for name, (checkpoints, patch) in MISTAKES.items()
    for checkpoint in checkpoints
]


@pytest.mark.parametrize(("name", "checkpoint", "patch"), CASES)
def test_a_classic_mistake_shows_in_the_logits(
    checkpoints: Checkpoints,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    checkpoint: str,
    patch: Patch,
) -> None:
    tiny = checkpoints(checkpoint)
    patch(monkeypatch)
    difference = (logits_of(tiny.directory, tiny) - tiny.answers[2].logits).abs().max()
    assert difference > BARELY_VISIBLE.get(name, CLEAR)


@pytest.mark.parametrize("name", INT4_MISTAKES)
def test_an_int4_mistake_shows_in_the_logits(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tiny = checkpoints("kimi_k2")
    int4_copy(torch.int32)(tiny.directory, tmp_path / "int4")
    dequantized_copy(tmp_path / "int4", tmp_path / "dense")
    right = logits_of(tmp_path / "dense", tiny)
    monkeypatch.setattr(source, "dequantize_int4", INT4_MISTAKES[name])
    assert (logits_of(tmp_path / "int4", tiny) - right).abs().max() > CLEAR


@pytest.mark.parametrize("name", FP8_MISTAKES)
def test_an_fp8_mistake_shows_in_the_logits(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tiny = checkpoints("glm5_wide")
    fp8_copy(tiny.directory, tmp_path / "fp8")
    dequantized_copy(tmp_path / "fp8", tmp_path / "dense")
    right = logits_of(tmp_path / "dense", tiny)
    monkeypatch.setattr(source, "dequantize_fp8", FP8_MISTAKES[name])
    assert (logits_of(tmp_path / "fp8", tiny) - right).abs().max() > CLEAR


def logits_of(directory: Path, tiny: TinyCheckpoint) -> torch.Tensor:
    """Return the logits of the checkpoint's shortest prompt."""
    return PagedRun(loader.load_model(directory)).read(tiny.answers[2].token_ids)
