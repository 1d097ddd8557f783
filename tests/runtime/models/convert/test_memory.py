"""Converting streams: the process never holds the model, nor a whole file of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import peak_conversion
from support.large_checkpoint import write_large_checkpoint
from support.tiny_checkpoints import TinyCheckpoint

MIB = 2**20
STATUS = Path("/proc/self/status")


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "large"
    shutil.rmtree(tmp_path / "large")


@pytest.mark.skipif(not STATUS.exists(), reason="the kernel's account of memory is Linux's")
def test_the_peak_of_converting_stays_below_one_file(
    checkpoints: Callable[[str], TinyCheckpoint], large: Path
) -> None:
    model_bytes, shard_bytes = write_large_checkpoint(large)
    assert model_bytes > 200 * MIB
    # a process of its own: this one's heap has room to hide the model in
    tests = Path(peak_conversion.__file__).parents[1]
    measured = subprocess.run(
        [
            sys.executable,
            "-m",
            "support.peak_conversion",
            str(checkpoints("kimi_k2").directory),
            str(large),
            str(shard_bytes),
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    assert json.loads(measured.stdout)["peak_bytes"] < shard_bytes
