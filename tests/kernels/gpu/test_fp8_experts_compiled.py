"""What FP8 experts launch on an H200: both models' shapes on one of eight, and whole experts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from support.aot import Call, Compiled, compile_calls, meta, require_that_all_fits
from tenantry_kernels.gpu.fp8_experts import Fp8Stack

pytestmark = pytest.mark.slow

# hidden and inner width, experts: of all of an expert's columns an eighth, or whole experts
SHAPES = {
    "glm, an eighth of each": (6144, 2048 // 8, 256),
    "kimi, an eighth of each": (7168, 2048 // 8, 384),
    "glm, an eighth of all": (6144, 2048, 256 // 8),
    "a tile of outputs with two scales": (6144, 192, 256),
}
ROWS = {"1 row": (1, None), "32 rows": (32, None), "4096 rows": (4096, 64)}
CHOICES = 8


def a_stack(experts: int, parts: int, outputs: int, columns: int) -> Fp8Stack:
    return Fp8Stack(
        meta(experts, parts, outputs, columns, dtype=torch.float8_e4m3fn),
        meta(experts, parts, -(-outputs // 128), -(-columns // 128), dtype=torch.float32),
    )


def a_call(shape: tuple[int, int, int], rows: int, tile_rows: int | None) -> Call:
    hidden, inner, experts = shape
    return Call(
        "tenantry_kernels.gpu.fp8_experts:fp8_experts",
        (
            meta(rows, hidden),
            meta(rows, CHOICES, dtype=torch.int32),
            meta(rows, CHOICES, dtype=torch.float32),
            a_stack(experts, 2, inner, hidden),
            a_stack(experts, 1, hidden, inner),
        ),
        {"tile_rows": tile_rows},
    )


@pytest.fixture(scope="module")
def compiled() -> Mapping[str, tuple[Compiled, ...]]:
    return compile_calls(
        {
            f"{name}, {many}": a_call(shape, *rows)
            for name, shape in SHAPES.items()
            for many, rows in ROWS.items()
        }
    )


def test_nothing_spills_and_products_use_warpgroup_instructions(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    require_that_all_fits(compiled)
    for name, kernels in compiled.items():
        products = [kernel for kernel in kernels if kernel.kernel == "_fp8_experts_kernel"]
        assert len(products) == 2
        for product in products:
            assert product.count("HGMMA"), f"{name}: {product}"
            # each block's sum is scaled, so it waits once per block
            assert product.wgmma_drains < 4, f"{name}: {product}"
