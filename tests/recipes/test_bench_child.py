from __future__ import annotations

from pathlib import Path

import pytest

from support.tiny_checkpoints import build
from tenantry_recipes.bench.child import ChildContender
from tenantry_recipes.bench.contender import BenchPrompt, EngineSettings
from tenantry_recipes.bench.errors import BenchmarkError
from tenantry_runtime.core import RenderOptions


def test_a_child_answers_and_tells_its_memory(tmp_path: Path) -> None:
    tiny = build("kimi_k2", tmp_path)
    prompts = [
        BenchPrompt(
            token_ids=tuple(answer.token_ids.tolist()), messages=(), options=RenderOptions()
        )
        for answer in tiny.answers
    ]
    settings = EngineSettings(directory=tmp_path, dtype="float32", cache="float32", threads=1)
    with ChildContender(settings) as child:
        run = child.generate(prompts, 8)
        peak = child.peak_bytes()

    assert run.token_ids == tuple(tuple(answer.greedy) for answer in tiny.answers)
    assert all(0 < times[0] <= times[-1] for times in run.token_s)
    # torch alone takes more than 100 MB
    assert peak > 100e6


def test_what_a_child_cannot_load_is_told_where_it_is_asked(tmp_path: Path) -> None:
    settings = EngineSettings(directory=tmp_path / "nothing", dtype="float32", threads=1)
    with ChildContender(settings) as child:
        with pytest.raises(BenchmarkError, match="no such file"):
            child.peak_bytes()
