"""A node serves weights in the format it is configured for, and its members name what is true."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tenantry_runtime.engine import build
from tenantry_runtime.engine.build import build_loop
from tenantry_runtime.engine.config import DtypeName, ModelSource, NodeConfig, WeightsName

KIMI = Path(build.__file__).parents[1] / "checkpoints" / "kimi-k2.6-nano"


@pytest.mark.parametrize(
    ("weights", "dtype", "served"),
    [
        (None, "bfloat16", "bfloat16"),
        ("dense", "float32", "float32"),
        ("stored", "bfloat16", "int4+bfloat16"),
        ("stored", "float32", "bfloat16+int4+float32"),
    ],
)
def test_members_name_the_weights_that_they_hold(
    weights: WeightsName | None, dtype: DtypeName, served: str
) -> None:
    config = NodeConfig(
        models=(ModelSource(id="kimi", directory=str(KIMI)),),
        dtype=dtype,
        weights=weights,
        num_pages=8,
    )
    loop = build_loop(config)
    try:
        assert {member.weights_format for member in loop.describe()} == {served}
    finally:
        loop.close()


def test_another_format_is_refused() -> None:
    content = b'{"models": [{"id": "kimi", "directory": "k"}], "weights": "int4"}'
    with pytest.raises(msgspec.ValidationError, match="weights"):
        msgspec.json.decode(content, type=NodeConfig)
