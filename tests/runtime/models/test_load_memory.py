"""Loading streams: the process never holds the model twice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import peak_memory
from support.large_checkpoint import KV_B_VALUES, write_large_checkpoint
from support.tiny_checkpoints import TinyCheckpoint

MIB = 2**20
STATUS = Path("/proc/self/status")


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "large"
    shutil.rmtree(tmp_path / "large")


@pytest.mark.skipif(not STATUS.exists(), reason="the kernel's account of memory is Linux's")
def test_the_peak_of_loading_stays_below_the_model_and_one_shard(
    checkpoints: Callable[[str], TinyCheckpoint], large: Path
) -> None:
    model_bytes, shard_bytes = write_large_checkpoint(large)
    assert model_bytes > 200 * MIB
    # a process of its own: this one's heap has room to hide the model in
    warm_up = checkpoints("kimi_k2").directory
    measured = subprocess.run(
        [sys.executable, peak_memory.__file__, str(warm_up), str(large)],
        check=True,
        capture_output=True,
        text=True,
    )
    grown = json.loads(measured.stdout)
    assert 0.9 * model_bytes < grown["end_bytes"] <= grown["peak_bytes"]
    assert grown["peak_bytes"] < model_bytes + shard_bytes


@pytest.mark.skipif(not STATUS.exists(), reason="the kernel's account of memory is Linux's")
def test_weights_as_stored_take_their_files_bytes_and_a_bounded_buffer(large: Path) -> None:
    large.mkdir()
    model_bytes, shard_bytes = write_large_checkpoint(large / "model", is_quantized=True)
    write_large_checkpoint(large / "small", num_layers=1, is_quantized=True)
    assert 80 * MIB < model_bytes < 90 * MIB
    measured = subprocess.run(
        [sys.executable, "-m", "support.peak_stored", str(large / "small"), str(large / "model")],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(peak_memory.__file__).parent.parent,
    )
    grown = json.loads(measured.stdout)
    # kv_b_proj alone becomes BF16
    expected = model_bytes + 7 * KV_B_VALUES
    assert 0.9 * expected < grown["end_bytes"] < expected + 4 * MIB
    assert grown["end_bytes"] <= grown["peak_bytes"] < expected + shard_bytes
