"""The op table has what every served format needs, and only what there is."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels import fp8_rows
from tenantry_kernels.choice import DeviceName
from tenantry_runtime.cache.formats import (
    CACHE_FORMATS,
    FP8_656,
    SERVED_FORMATS,
    RowFormat,
    RowName,
)
from tenantry_runtime.cache.gpu_ops import append
from tenantry_runtime.cache.ops import OpKey, ops_on, page_ops, row_ops, served_rows
from tenantry_runtime.errors import ConfigurationError

SERVED_ROWS = {
    rows.name: rows for form in SERVED_FORMATS.values() for rows in (form.latent, form.index)
}
EVERY_ROWS = pytest.mark.parametrize("rows", SERVED_ROWS.values(), ids=SERVED_ROWS)


@EVERY_ROWS
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_served_rows_can_be_kept_and_read_everywhere(rows: RowFormat, device: DeviceName) -> None:
    for op in ("append", "read", "index append", "index read"):
        assert ops_on(device)[OpKey(op, rows.name, device)].touches_pages
    assert rows.name in served_rows(torch.device(device))


@EVERY_ROWS
def test_on_a_cpu_decoding_is_compiled_for_all(rows: RowFormat) -> None:
    for op in ("decode attention", "index scores", "decode step"):
        assert ops_on("cpu")[OpKey(op, rows.name, "cpu")].touches_pages


@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_on_a_gpu_no_length_is_asked_of_the_device(name: RowName) -> None:
    for op in ("page attention", "sparse page attention", "index choice", "wire digest"):
        assert ops_on("cuda")[OpKey(op, name, "cuda")].touches_pages
    assert ops_on("cuda")[OpKey("append", name, "cuda")].function is append


@EVERY_ROWS
def test_the_table_names_what_attention_takes(rows: RowFormat) -> None:
    ops = page_ops(rows, torch.device("cpu"))
    assert ops_on("cpu")[OpKey("append", rows.name, "cpu")].function is ops.append
    assert ops_on("cpu")[OpKey("index append", rows.name, "cpu")].function is ops.append
    assert ops_on("cpu")[OpKey("read", rows.name, "cpu")].function is ops.read
    assert ops_on("cpu")[OpKey("decode attention", rows.name, "cpu")].function is ops.decode
    assert ops_on("cpu")[OpKey("index scores", rows.name, "cpu")].function is ops.scores


def test_what_works_on_rows_that_were_read_touches_no_page() -> None:
    functions = {
        row_ops(torch.device("cpu")).decode,
        row_ops(torch.device("cpu")).chunk,
        row_ops(torch.device("cpu")).compiled_chunk,
        row_ops(torch.device("cpu")).compiled_choice,
        row_ops(torch.device("cpu")).compiled_index,
        row_ops(torch.device("cpu")).scores,
        row_ops(torch.device("cpu")).scores_batch,
    }
    listed = {op.function for op in ops_on("cpu").values() if not op.touches_pages}
    assert listed == functions
    assert not any(
        op.touches_pages for key, op in ops_on("cpu").items() if key.op.endswith("of rows")
    )


def test_what_has_no_ops_is_refused() -> None:
    assert served_rows(torch.device("cpu")) == set(SERVED_ROWS)
    with pytest.raises(ConfigurationError, match="fp8-656"):
        page_ops(FP8_656, torch.device("cpu"))
    with pytest.raises(ConfigurationError, match="meta"):
        page_ops(CACHE_FORMATS["bf16"].latent, torch.device("meta"))


def test_pages_go_out_as_they_are_kept_or_in_the_receivers_format() -> None:
    pool = torch.randn(5, 64, 12, generator=torch.Generator().manual_seed(0)).bfloat16()
    wire = page_ops(CACHE_FORMATS["bf16"].latent, torch.device("cpu")).wire
    pages = torch.tensor([3, 0])
    same = wire["bf16"](pool, pages)
    assert torch.equal(same.view(torch.bfloat16).view(2, 64, 12), pool[pages])
    quantised = wire["fp8"](pool, pages)
    assert quantised.shape == (2, 64 * (12 + 4))
    # what the receiver would have kept, had it made the rows
    kept = torch.zeros(3, 64 * (12 + 4), dtype=torch.uint8)
    fp8_rows.append_rows(kept, torch.arange(128), pool[pages].flatten(0, 1))
    assert torch.equal(quantised, kept[:2])
    again = page_ops(CACHE_FORMATS["fp8"].latent, torch.device("cpu")).wire["fp8"]
    assert torch.equal(again(kept, torch.tensor([1])), quantised[1:])
