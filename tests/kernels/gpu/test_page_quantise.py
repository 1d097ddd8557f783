"""Pages quantised on the device equal the CPU's, to the byte."""

from __future__ import annotations

import pytest
import torch

from support.latent_pages import DEVICE, random_pages
from tenantry_kernels.fp8_rows import pack_pages
from tenantry_kernels.gpu.page_quantise import page_quantise


@pytest.mark.parametrize("width", [576, 128, 40])
def test_pages_become_the_bytes_of_the_reference(width: int) -> None:
    pool = random_pages([300], width, is_fp8=False, poison=False).pool
    pool[2, 5] = 0
    page = torch.tensor([2, 0, 6])
    ours = page_quantise(pool, page.to(DEVICE)).cpu()
    assert torch.equal(ours, pack_pages(pool.cpu()[page]))


def test_a_page_outside_the_pool_gives_zeros() -> None:
    pool = random_pages([64], 40, is_fp8=False).pool
    out = page_quantise(pool, torch.tensor([-1, len(pool)], device=DEVICE)).cpu()
    assert torch.equal(out, pack_pages(torch.zeros(2, 64, 40)))
