"""The benchmark of constrained decoding judges answers by their schemas."""

from __future__ import annotations

import pytest

from tenantry_recipes.bench.constrained import check_answers


@pytest.mark.parametrize("model", ["kimi-k2.6-nano", "glm-5.2-nano"])
def test_what_a_nano_model_is_held_to_is_valid(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_answers([model], 8)
    said = capsys.readouterr().out.splitlines()
    assert said == [f"{model}, 8 calls: {{'valid': 8}}", f"{model}, 8 JSON: {{'valid': 8}}"]
