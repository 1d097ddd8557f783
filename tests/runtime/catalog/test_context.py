from __future__ import annotations

from pathlib import Path

import pytest

from tenantry_runtime.catalog import checkpoint_context
from tenantry_runtime.errors import CheckpointError


@pytest.mark.parametrize(
    ("config", "context"),
    [
        ('{"max_position_embeddings": 4096, "hidden_size": 8}', 4096),
        ('{"text_config": {"max_position_embeddings": 262144}, "model_type": "kimi_k25"}', 262144),
    ],
    ids=["flat", "nested"],
)
def test_the_context_is_what_the_config_says(tmp_path: Path, config: str, context: int) -> None:
    (tmp_path / "config.json").write_text(config)

    assert checkpoint_context(tmp_path) == context


@pytest.mark.parametrize(
    "config",
    [
        None,
        "{",
        "[]",
        "{}",
        '{"max_position_embeddings": "many"}',
        '{"max_position_embeddings": 0}',
    ],
)
def test_a_config_that_does_not_say_it_is_refused(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)

    with pytest.raises(CheckpointError, match=r"config\.json"):
        checkpoint_context(tmp_path)
