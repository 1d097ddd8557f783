"""The comparison of row formats measures what formats do, and nothing else."""

from __future__ import annotations

import pytest
import torch

from tenantry_recipes.cache_error.__main__ import agreement, error_table, output_error, scaled_down
from tenantry_recipes.cache_error.capture import NUM_QUERIES, Recorder, SeenIndex, SeenLayer, record
from tenantry_recipes.cache_error.outliers import enlarge_latents, enlarge_rope, enlarge_tokens
from tenantry_recipes.cache_error.round_trip import round_trip
from tenantry_recipes.nano.models import checkpoint_directory
from tenantry_runtime.cache.formats import (
    BF16,
    FLOAT32,
    FP8,
    FP8_576,
    FP8_644,
    FP8_656,
    RowFormat,
)
from tenantry_runtime.models.loader import load_model

LATENT, ROPE, KEYS, ROWS, HEADS, VALUE = 16, 4, 50, 6, 2, 5


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def a_layer() -> SeenLayer:
    position = torch.arange(KEYS)
    return SeenLayer(
        q_TNC=noise(ROWS, HEADS, LATENT + ROPE),
        row_KC=noise(KEYS, LATENT + ROPE, seed=1).float().double(),
        value_NVL=noise(HEADS, VALUE, LATENT, seed=2),
        scale=0.3,
        is_seen_TK=position <= position[-ROWS:, None],
    )


@pytest.fixture(scope="module", params=["kimi-k2.6-nano", "glm-5.2-nano"])
def recorder(request: pytest.FixtureRequest) -> Recorder:
    decoder = load_model(checkpoint_directory(request.param))
    return record(decoder, [(7 * n) % 900 for n in range(400)])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # 1 + 2**-8 lies between two values of BF16, and goes to the even one
        (FLOAT32, [[1.00390625, -3.0, 448.0, 1.00390625], [0.0, 0.25, 0.0, 1024.0]]),
        (BF16, [[1.0, -3.0, 448.0, 1.0], [0.0, 0.25, 0.0, 1024.0]]),
        (FP8, [[1.0, -3.0, 448.0, 1.0], [0.0, 0.25, 0.0, 1024.0]]),
        (FP8_644, [[1.0, -3.0, 448.0, 1.0], [0.0, 0.25, 0.0, 1024.0]]),
    ],
    ids=lambda value: value.name if isinstance(value, RowFormat) else "",
)
def test_rows_come_back_as_their_format_keeps_them(
    rows: RowFormat, expected: list[list[float]]
) -> None:
    row_KC = torch.tensor([[1.00390625, -3.0, 448.0, 1.00390625], [0.0, 0.25, 0.0, 1024.0]])
    assert round_trip(row_KC.double(), rows, rope_dim=1).tolist() == expected


def test_scales_are_of_what_their_format_says() -> None:
    # far below the largest value of its scale, 3 * 2**-12 has no bits left
    row_KC = torch.tensor([[448.0, 3 * 2.0**-12], [3 * 2.0**-12, 0.0], [448.0, 0.0]]).double()
    small = 3 * 2.0**-12
    assert round_trip(row_KC, FP8, rope_dim=1).tolist() == [[448, 0], [small, 0], [448, 0]]
    assert round_trip(row_KC, FP8_576, rope_dim=1)[1, 0] == 0
    assert round_trip(row_KC, FP8_644, rope_dim=1)[0].tolist() == [448, small]
    blocked = scaled_down(FP8_656, 8)
    assert blocked.scale_block == 2
    latent = torch.tensor([[448.0, 0.0, small, small, 1.0]]).double()
    assert round_trip(latent, blocked, rope_dim=1).tolist() == latent.tolist()
    assert round_trip(latent, FP8_644, rope_dim=1)[0, 2] == 0


def test_attention_of_recorded_rows_is_the_models(recorder: Recorder) -> None:
    layer = recorder.layers[-1]
    out = layer.values(layer.row_KC)
    assert out.shape == (NUM_QUERIES, 4, 64)
    # written out for one row and head
    keys = layer.row_KC[layer.is_seen_TK[5]]
    weight = torch.softmax(keys @ layer.q_TNC[5, 2] * layer.scale, 0)
    torch.testing.assert_close(out[5, 2], layer.value_NVL[2] @ (weight @ keys[:, :64]))


def test_enlarged_channels_leave_what_a_layer_computes(recorder: Recorder) -> None:
    layer = recorder.layers[2]
    exact = layer.values(layer.row_KC)
    for enlarge in (enlarge_latents, enlarge_rope):
        other = enlarge(layer, factor=1000.0)
        torch.testing.assert_close(other.values(other.row_KC), exact)
        assert other.row_KC.abs().max() > 50 * layer.row_KC.abs().max()
    tokens = enlarge_tokens(layer, factor=30.0)
    assert int((tokens.row_KC != layer.row_KC).any(-1).sum()) == 4


def test_more_bits_have_less_error_and_exact_rows_none() -> None:
    layers = [a_layer()]
    assert output_error(layers, FLOAT32).rms < 1e-7
    bf16, apart, fp8 = (output_error(layers, rows).rms for rows in (BF16, FP8_644, FP8))
    assert 0 < bf16 < apart < fp8 < 0.1


def test_the_table_has_a_line_per_format_and_the_bytes_of_released_rows(recorder: Recorder) -> None:
    _, _, *lines = error_table(recorder.layers[:1]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [(cell[0], cell[1]) for cell in cells] == [
        ("bf16", "1152"),
        ("fp8-576", "576"),
        ("fp8", "580"),
        ("fp8-644", "644"),
        ("fp8-656", "656"),
    ]


def test_exact_index_keys_choose_the_same() -> None:
    position = torch.arange(KEYS)
    index = SeenIndex(
        q_TJD=noise(ROWS, 3, 8),
        weight_TJ=noise(ROWS, 3, seed=1),
        key_KD=noise(KEYS, 8, seed=2).float().double(),
        is_past_TK=position <= position[-ROWS:, None],
        top_k=10,
    )
    assert agreement([index], FLOAT32) == 1.0
    assert 0.7 < agreement([index], FP8) <= 1.0
