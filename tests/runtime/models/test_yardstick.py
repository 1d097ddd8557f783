"""The decoders against a second reference, where it lies next to this repository."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from support.mtp_checkpoints import drafts, mtp_copy
from support.paged_batch import PagedRun
from support.quantized_copies import Copy, fp8_copy, int4_copy
from support.released_layouts import read_config
from support.tiny_checkpoints import TinyCheckpoint
from tenantry_runtime.models.loader import load_model

Checkpoints = Callable[[str], TinyCheckpoint]

REFERENCE = Path(__file__).resolve().parents[4] / "shared" / "reference" / "ref_forward.py"

# the reference does not group experts
NAMES = ["kimi_k2", "kimi_k2_thinking", "kimi_k25", "glm5", "glm5_wide", "glm52", "glm47_flash"]
COPIES = [
    pytest.param(int4_copy(torch.int32), id="int4"),
    pytest.param(fp8_copy, id="fp8"),
]


@pytest.fixture(scope="module")
def reference() -> Any:
    if not REFERENCE.exists():
        pytest.skip("the second reference is not next to this repository")
    spec = importlib.util.spec_from_file_location("ref_forward", REFERENCE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copy", COPIES)
def test_quantized_checkpoints_have_the_second_references_logits(
    reference: Any, checkpoints: Checkpoints, tmp_path: Path, name: str, copy: Copy
) -> None:
    tiny = checkpoints(name)
    copy(tiny.directory, tmp_path / "copy")
    config = read_config(tmp_path / "copy")
    token_ids = tiny.answers[2].token_ids
    weights = reference.W(tmp_path / "copy")
    expected = reference.forward(weights, config.get("text_config", config), token_ids)
    logits = PagedRun(load_model(tmp_path / "copy")).read(token_ids)
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["glm5", "glm52"])
def test_an_mtp_layer_has_the_second_references_drafts(
    reference: Any, checkpoints: Checkpoints, tmp_path: Path, name: str
) -> None:
    tiny = checkpoints(name)
    mtp_copy(tiny.directory, tmp_path / "mtp")
    config = read_config(tmp_path / "mtp")
    token_ids = tiny.answers[2].token_ids
    weights = reference.W(tmp_path / "mtp")
    _, hidden = reference.forward(weights, config, token_ids[:-1], return_hidden=True)
    position = torch.arange(token_ids.shape[0] - 1)
    expected, _ = reference.mtp_forward(weights, config, hidden, token_ids[1:], position)
    logits, _ = drafts(load_model(tmp_path / "mtp"), hidden, token_ids[1:])
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5)
