"""What the INT4 experts launch on an H200, at the shapes of Kimi-K2.6 and GLM-5.2 on eight of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from support.aot import Call, Compiled, compile_calls, meta, require_that_all_fits
from tenantry_kernels.gpu.int4_experts import Int4Experts, Int4Stack

pytestmark = pytest.mark.slow

TP8_INNER = 2048 // 8
CHOICES = 8
# hidden width, experts
MODELS = {"kimi": (7168, 384), "glm": (6144, 256)}
ROWS = (1, 8, 128, 512)
PRODUCT = "_int4_product_kernel"


def a_call(hidden: int, experts: int, rows: int, *, tile_rows: int | None = None) -> Call:
    def stack(outputs: int, columns: int) -> Int4Stack:
        return Int4Stack(
            meta(experts, outputs, columns // 8, dtype=torch.int32),
            meta(experts, outputs, columns // 32),
        )

    weights = Int4Experts(stack(2 * TP8_INNER, hidden), stack(hidden, TP8_INNER))
    chosen = meta(rows, CHOICES, dtype=torch.int32)
    factor = meta(rows, CHOICES, dtype=torch.float32)
    return Call(
        "tenantry_kernels.gpu.int4_experts:int4_experts",
        (meta(rows, hidden), chosen, factor, weights),
        {} if tile_rows is None else {"tile_rows": tile_rows},
    )


@pytest.fixture(scope="module")
def compiled() -> Mapping[str, tuple[Compiled, ...]]:
    calls = {
        f"{model} {rows} rows": a_call(*shape, rows)
        for model, shape in MODELS.items()
        for rows in ROWS
    }
    calls["kimi tile of 8"] = a_call(*MODELS["kimi"], 8, tile_rows=8)
    calls["kimi tile of 64"] = a_call(*MODELS["kimi"], 512, tile_rows=64)
    return compile_calls(calls)


def test_nothing_spills_and_everything_fits(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    require_that_all_fits(compiled)


def test_products_use_warpgroup_instructions_on_tiles_of_16_rows_or_more(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    for name, kernels in compiled.items():
        products = [kernel for kernel in kernels if kernel.kernel == PRODUCT]
        assert len(products) == 2, name
        instruction = "HMMA" if name.endswith("tile of 8") else "HGMMA"
        assert all(product.count(instruction) for product in products), name
        # all of a block's instructions are under way at once
        assert all(product.wgmma_drains <= 1 for product in products), name


def test_a_pair_of_weights_takes_one_logic_instruction(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    """As many LOP3 as pairs in a block, and what addresses take; a naive unpacking takes three."""
    for name, kernels in compiled.items():
        for product in (kernel for kernel in kernels if kernel.kernel == PRODUCT):
            outputs, columns = product.constants["OUTPUTS"], product.constants["COLUMNS"]
            assert isinstance(outputs, int) and isinstance(columns, int)
            pairs_per_thread = outputs * columns // 2 // (product.num_warps * 32)
            assert product.count("LOP3") < 2 * pairs_per_thread + 16, f"{name}: {product}"
            # one fused multiply-add per pair, and nothing converted one by one
            assert product.count("HFMA2") <= pairs_per_thread + 16, f"{name}: {product}"
            assert product.count("I2F") + product.count("F2F") <= 2, f"{name}: {product}"


def test_weights_are_copied_sixteen_bytes_at_a_time_while_others_are_computed_on(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    for name, kernels in compiled.items():
        for product in (kernel for kernel in kernels if kernel.kernel == PRODUCT):
            assert product.count("LDGSTS") > 0, f"{name}: {product}"


def test_one_row_is_not_sorted(compiled: Mapping[str, tuple[Compiled, ...]]) -> None:
    assert [kernel.kernel for kernel in compiled["kimi 1 rows"]] == [
        "_order_kernel",
        PRODUCT,
        "_swiglu_kernel",
        PRODUCT,
        "_combine_kernel",
    ]


def test_few_rows_still_fill_the_gpu(compiled: Mapping[str, tuple[Compiled, ...]]) -> None:
    """132 multiprocessors, two programs each at least."""
    for model in MODELS:
        for product in compiled[f"{model} 1 rows"]:
            if product.kernel == PRODUCT:
                tiles, blocks, parts = product.grid
                assert tiles * blocks * parts >= 2 * 132
