"""What BF16 experts launch on an H200, at GLM-5.2's shapes on one of eight."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from support.aot import Call, Compiled, compile_calls, meta, require_that_all_fits

pytestmark = pytest.mark.slow

HIDDEN, INNER, EXPERTS, CHOICES = 6144, 2048 // 8, 256, 8


def a_call(rows: int, tile_rows: int | None = None) -> Call:
    return Call(
        "tenantry_kernels.gpu.dense_experts:dense_experts",
        (
            meta(rows, HIDDEN),
            meta(rows, CHOICES, dtype=torch.int32),
            meta(rows, CHOICES, dtype=torch.float32),
            meta(EXPERTS, 2 * INNER, HIDDEN),
            meta(EXPERTS, HIDDEN, INNER),
        ),
        {"tile_rows": tile_rows},
    )


@pytest.fixture(scope="module")
def compiled() -> Mapping[str, tuple[Compiled, ...]]:
    calls = {"1 row": a_call(1), "32 rows": a_call(32), "4096 rows": a_call(4096, 64)}
    return compile_calls(calls)


def test_nothing_spills_and_products_use_warpgroup_instructions(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    require_that_all_fits(compiled)
    for name, kernels in compiled.items():
        products = [kernel for kernel in kernels if kernel.kernel == "_dense_product_kernel"]
        assert len(products) == 2
        for product in products:
            assert product.count("HGMMA"), f"{name}: {product}"
            assert product.wgmma_drains < 4, f"{name}: {product}"
