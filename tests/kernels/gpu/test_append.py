"""Appends on the device against the CPU's, to the byte, and what they leave in the fills."""

from __future__ import annotations

import pytest
import torch

from support.latent_pages import DEVICE, noise
from tenantry_kernels import fp8_rows, paged_mla
from tenantry_kernels.gpu.append import LastAppend, append
from tenantry_kernels.page_check import NO_SLOT

PAGES = 5
# a page's last rows, one of another page, one that is not written, and the next page's first
SLOTS = [3 * 64 + 62, 3 * 64 + 63, 10, NO_SLOT, 64]
POSITIONS = [126, 127, 10, 11, 128]


def rows(width: int) -> torch.Tensor:
    row = noise(len(SLOTS), width, seed=0) * 2.0 ** torch.arange(-60, 90, 30)[:, None]
    row[1] = 0
    return row


def empty_pool(width: int, *, is_fp8: bool) -> torch.Tensor:
    if is_fp8:
        return torch.zeros(PAGES + 1, fp8_rows.page_bytes(width), dtype=torch.uint8)
    return torch.zeros(PAGES + 1, 64, width, dtype=torch.bfloat16)


# the released models' latent and index keys, and a width that is no power of two
@pytest.mark.parametrize("width", [576, 128, 24])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_fp8_rows_are_quantised_as_on_the_cpu(width: int, dtype: torch.dtype) -> None:
    row, slot = rows(width).to(dtype), torch.tensor(SLOTS)
    pool = empty_pool(width, is_fp8=True)
    ours = pool.to(DEVICE, copy=True)
    append(ours, slot.to(DEVICE), row.to(DEVICE))
    fp8_rows.append_rows(pool, slot, row)
    # the CPU's sink took the row that the device did not write
    assert torch.equal(ours.cpu()[:-1], pool[:-1])
    assert (ours[-1] == 0).all()


@pytest.mark.parametrize("width", [576, 24])
def test_bf16_rows_are_copied(width: int) -> None:
    row, slot = rows(width), torch.tensor(SLOTS)
    pool = empty_pool(width, is_fp8=False)
    ours = pool.to(DEVICE, copy=True)
    append(ours, slot.to(DEVICE), row.to(DEVICE))
    paged_mla.append_rows(pool, slot, row)
    assert torch.equal(ours.cpu()[:-1], pool[:-1])


def test_rows_may_be_a_slice_of_a_wider_matrix() -> None:
    wide, slot = rows(64).to(DEVICE), torch.tensor(SLOTS, device=DEVICE)
    ours, whole = (empty_pool(24, is_fp8=True).to(DEVICE) for _ in range(2))
    append(ours, slot, wide[:, 8:32])
    append(whole, slot, wide[:, 8:32].contiguous())
    assert torch.equal(ours, whole)


def append_layers(appended: list[bool], fill: torch.Tensor) -> torch.Tensor:
    """Append to one pool for each flag, the last of the step last; return the fills."""
    slot = torch.tensor(SLOTS, device=DEVICE)
    landed = torch.zeros(len(SLOTS), dtype=torch.int32, device=DEVICE)
    fill = fill.to(DEVICE)
    last = LastAppend(
        fill_P=fill,
        position_T=torch.tensor(POSITIONS, device=DEVICE),
        num_appends=len(appended),
    )
    for layer, is_appended in enumerate(appended):
        if is_appended:
            append(
                empty_pool(24, is_fp8=layer % 2 == 0).to(DEVICE),
                slot,
                rows(24).to(DEVICE),
                landed_T=landed,
                last=last if layer == len(appended) - 1 else None,
            )
    assert (landed == 0).all() or not appended[-1]
    return fill.cpu()


def test_the_last_append_completes_the_fills() -> None:
    fill = torch.zeros(PAGES + 1, dtype=torch.int64)
    fill[3], fill[0] = 1 << 32 | 62, 10
    expected = fill.clone()
    expected[3], expected[0], expected[1] = 1 << 32 | 64, 11, 2 << 32 | 1
    assert append_layers([True, True, True], fill).tolist() == expected.tolist()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_append_of_any_layer_leaves_the_fills_short(lost: int) -> None:
    fill = torch.zeros(PAGES + 1, dtype=torch.int64)
    fill[3], fill[0] = 1 << 32 | 62, 10
    appended = [layer != lost for layer in range(3)]
    assert append_layers(appended, fill).tolist() == fill.tolist()
