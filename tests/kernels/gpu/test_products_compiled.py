"""What the FP8 product and the router launch on an H200, at the shapes of both models on eight."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from support.aot import Call, Compiled, compile_calls, meta, require_that_all_fits
from tenantry_kernels.gpu.fp8_product import Fp8Stored

pytestmark = pytest.mark.slow

# GLM-5.2's FP8 matrices on one of eight GPUs; the first two have partial blocks of outputs
FP8_SHAPES = {
    "kv_a": (576, 6144),
    "q_a and kv_a": (2048 + 576, 6144),
    "q_b": (16384 // 8, 2048),
    "output": (6144, 16384 // 8),
    "dense down": (6144, 12288 // 8),
    "shared gate_up": (2 * 2048 // 8, 6144),
}
FP8_ROWS = {"kv_a": (1,), "q_a and kv_a": (1, 32, 64, 512), "q_b": (1, 512)}
# hidden width, experts
ROUTERS = {"kimi": (7168, 384), "glm": (6144, 256)}


def an_fp8_call(outputs: int, columns: int, rows: int) -> Call:
    matrix = Fp8Stored(
        meta(outputs, columns, dtype=torch.float8_e4m3fn),
        meta(-(-outputs // 128), -(-columns // 128), dtype=torch.float32),
    )
    return Call("tenantry_kernels.gpu.fp8_product:fp8_product", (meta(rows, columns), matrix))


def a_router_call(width: int, experts: int, rows: int, dtype: torch.dtype) -> Call:
    weight, bias = meta(experts, width, dtype=dtype), meta(experts, dtype=torch.float32)
    ok = meta(rows, dtype=torch.bool)
    return Call(
        "tenantry_kernels.gpu.router:route",
        (meta(rows, width), weight, bias, 8),
        {"scaling": 2.5, "ok_T": ok},
    )


@pytest.fixture(scope="module")
def compiled() -> Mapping[str, tuple[Compiled, ...]]:
    calls = {
        f"fp8 {name} {rows} rows": an_fp8_call(*shape, rows)
        for name, shape in FP8_SHAPES.items()
        for rows in FP8_ROWS.get(name, (16,))
    }
    for model, (width, experts) in ROUTERS.items():
        for rows in (1, 512):
            calls[f"router {model} {rows} rows"] = a_router_call(
                width, experts, rows, torch.bfloat16
            )
    for rows in (32, 512):
        calls[f"router glm {rows} rows, float32"] = a_router_call(
            *ROUTERS["glm"], rows, torch.float32
        )
    return compile_calls(calls)


def test_nothing_spills_and_everything_fits(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    require_that_all_fits(compiled)


def test_products_use_warpgroup_instructions(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    for name, kernels in compiled.items():
        product = kernels[0]
        assert product.kernel in ("_fp8_product_kernel", "_score_kernel")
        assert product.count("HGMMA"), f"{name}: {product}"
        # the FP8 product scales each block's sum, so it waits once per block
        assert product.wgmma_drains < 4, f"{name}: {product}"


def test_e4m3_is_never_converted_by_the_slow_instruction(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    for name, kernels in compiled.items():
        if name.startswith("fp8"):
            assert kernels[0].count("F2F") == 0, f"{name}: {kernels[0]}"


def test_few_rows_still_fill_the_gpu(compiled: Mapping[str, tuple[Compiled, ...]]) -> None:
    """More than half of the 132 multiprocessors, where each has several blocks on their way."""
    for name in ("fp8 q_a and kv_a 1 rows", "fp8 kv_a 1 rows", "router kimi 1 rows"):
        tiles, blocks, parts = compiled[name][0].grid
        assert tiles * blocks * parts > 132 // 2, name
