"""What the page and attention ops launch on an H200, at the shapes of Kimi-K2.6 and GLM-5.2."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from support.aot import MAX_SHARED_BYTES, Call, Compiled, compile_calls, meta, require_that_all_fits
from tenantry_kernels.fp8_rows import page_bytes
from tenantry_kernels.gpu.append import LastAppend
from tenantry_kernels.gpu.mla_tile import FP8_TILINGS

pytestmark = pytest.mark.slow

GPU = "tenantry_kernels.gpu"
# cached values of a token and those of them that are latent, in both models
WIDTH, LATENT = 576, 512
# GLM's indexer
INDEX_HEADS, INDEX_WIDTH, CHOICES = 32, 128, 2048
PAGES, COLUMNS, SEQUENCES = 1000, 512, 32
# heads on one of eight GPUs with one to four query tokens, and all heads on one
ROWS = {
    "8 heads": (8, 1),
    "8 heads, 2 tokens": (8, 2),
    "8 heads, 4 tokens": (8, 4),
    "64 heads": (64, 1),
}
BF16_ROWS = ["8 heads", "8 heads, 4 tokens"]


def whole(*shape: int) -> torch.Tensor:
    return meta(*shape, dtype=torch.int64)


def a_pool(width: int, *, is_fp8: bool) -> torch.Tensor:
    if is_fp8:
        return meta(PAGES + 1, page_bytes(width), dtype=torch.uint8)
    return meta(PAGES + 1, 64, width)


def decode_calls(is_fp8: bool) -> dict[str, Call]:
    form = "fp8" if is_fp8 else "bf16"
    calls = {}
    # BF16 programs are alike whatever their rows
    for name in ROWS if is_fp8 else BF16_ROWS:
        heads, tokens = ROWS[name]
        batch = (
            meta(SEQUENCES, tokens, heads, WIDTH),
            a_pool(WIDTH, is_fp8=is_fp8),
            whole(SEQUENCES, COLUMNS),
            whole(SEQUENCES),
        )
        how = {"scale": 0.07, "latent_dim": LATENT}
        calls[f"mla {form} {name}"] = Call(f"{GPU}.mla_decode:mla_decode", batch, how)
        chosen = meta(SEQUENCES, tokens, CHOICES, dtype=torch.int32)
        calls[f"sparse {form} {name}"] = Call(
            f"{GPU}.sparse_decode:sparse_decode", (*batch, chosen), how
        )
    return calls


def page_calls() -> dict[str, Call]:
    rows = 32
    landed = {"landed_T": meta(rows, dtype=torch.int32)}
    last = LastAppend(fill_P=whole(PAGES + 1), position_T=whole(rows), num_appends=61)
    pool, row = a_pool(WIDTH, is_fp8=True), meta(rows, WIDTH)
    fault, table = whole(SEQUENCES), whole(SEQUENCES, COLUMNS)
    check = {
        "tag_P": whole(PAGES + 1),
        "fill_P": whole(PAGES + 1),
        "page_table_SL": table,
        "expected_tag_SL": table,
        "owner_S": fault,
        "filled_S": fault,
        "end_S": fault,
    }
    mask = {
        "page_table_SL": table,
        "read_len_S": fault,
        "write_slot_T": whole(rows),
        "sequence_T": whole(rows),
        "sink_page": PAGES,
    }
    bf16 = a_pool(WIDTH, is_fp8=False)
    append = f"{GPU}.append:append"
    return {
        "check": Call(f"{GPU}.page_check:check_pages", (fault,), check),
        "check after": Call(
            f"{GPU}.page_check:check_pages", (fault,), {**check, "first_page_S": fault}
        ),
        "mask": Call(f"{GPU}.page_check:mask_batch", (fault,), mask),
        "append fp8": Call(append, (pool, whole(rows), row), landed),
        "append fp8 last": Call(append, (pool, whole(rows), row), {**landed, "last": last}),
        "append bf16": Call(append, (bf16, whole(rows), row), landed),
        "append index": Call(
            append,
            (a_pool(INDEX_WIDTH, is_fp8=True), whole(rows), meta(rows, INDEX_WIDTH)),
            landed,
        ),
        "quantise": Call(f"{GPU}.page_quantise:page_quantise", (bf16, whole(16))),
        "digest": Call(f"{GPU}.page_digest:page_digests", (pool, whole(16))),
    }


def index_calls() -> dict[str, Call]:
    score = meta(SEQUENCES, 1, COLUMNS * 64, dtype=torch.float32)
    batch = (
        meta(SEQUENCES, 1, INDEX_HEADS, INDEX_WIDTH),
        meta(SEQUENCES, 1, INDEX_HEADS, dtype=torch.float32),
        a_pool(INDEX_WIDTH, is_fp8=True),
        whole(SEQUENCES, COLUMNS),
        whole(SEQUENCES),
    )
    return {
        "index scores": Call(f"{GPU}.indexer:index_scores", batch),
        "top positions": Call(f"{GPU}.indexer:top_positions", (score, whole(SEQUENCES), CHOICES)),
    }


@pytest.fixture(scope="module")
def compiled() -> Mapping[str, tuple[Compiled, ...]]:
    return compile_calls(
        {**decode_calls(True), **decode_calls(False), **page_calls(), **index_calls()}
    )


def test_nothing_spills_and_everything_fits(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    require_that_all_fits(compiled)


PRODUCTS = {"_mla_decode_kernel", "_sparse_decode_kernel", "_index_scores_kernel"}


def products(compiled: Mapping[str, tuple[Compiled, ...]]) -> dict[str, Compiled]:
    return {
        name: kernel
        for name, kernels in compiled.items()
        for kernel in kernels
        if kernel.kernel in PRODUCTS
    }


def test_attention_and_index_scores_use_warpgroup_instructions(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    assert len(products(compiled)) == 2 * (len(ROWS) + len(BF16_ROWS)) + 1
    for name, kernel in products(compiled).items():
        assert kernel.count("HGMMA") and not kernel.count("HMMA"), f"{name}: {kernel}"


def test_each_key_tile_is_multiplied_once(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    """A warp group's 64 keys by 16 values take an instruction, and so do 64 values by 16 keys."""
    for name, kernel in products(compiled).items():
        if not name.startswith("index"):
            keys = kernel.constants["BLOCK_T"]
            assert isinstance(keys, int)
            groups = kernel.num_warps // 4
            scores = keys // 64 * (WIDTH // 16)
            sums = LATENT // 64 * (keys // 16)
            assert kernel.count("HGMMA") * groups == scores + sums, f"{name}: {kernel}"


def test_e4m3_is_widened_two_values_at_a_time(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    for name, kernel in products(compiled).items():
        assert kernel.count("F2F") == 0, f"{name}: {kernel}"


def test_a_multiprocessor_has_room_for_as_many_programs_as_contexts_are_cut_for(
    compiled: Mapping[str, tuple[Compiled, ...]],
) -> None:
    tilings = {tiling.rows: tiling for tiling in FP8_TILINGS}
    for name in ROWS:
        kernel = products(compiled)[f"mla fp8 {name}"]
        rows = kernel.constants["BLOCK_M"]
        assert isinstance(rows, int)
        resident = tilings[rows].resident
        assert kernel.shared_bytes * resident <= MAX_SHARED_BYTES, f"{name}: {kernel}"
        # the register file has 65,536, given out eight at a time
        registers = -(-kernel.registers // 8) * 8
        assert registers * kernel.num_warps * 32 * resident <= 65_536, f"{name}: {kernel}"
