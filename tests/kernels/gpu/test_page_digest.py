"""Digests computed on the device equal those computed on the CPU."""

from __future__ import annotations

import pytest
import torch

from support.latent_pages import DEVICE, noise, random_pages
from tenantry_kernels.gpu.page_digest import page_digests
from tenantry_kernels.page_digest import page_digests as reference


# FP8 pages, BF16 pages, and pages of fewer words than a block
@pytest.mark.parametrize(("width", "is_fp8"), [(576, True), (96, False), (8, False)])
def test_pages_have_the_digests_of_the_reference(width: int, is_fp8: bool) -> None:
    pool = random_pages([300], width, is_fp8=is_fp8, poison=False).pool
    page = torch.tensor([4, 0, 4, 7])
    assert torch.equal(page_digests(pool, page.to(DEVICE)).cpu(), reference(pool.cpu()[page]))


def test_a_page_outside_the_pool_is_digested_as_zeros() -> None:
    pool = noise(3, 64, 8, seed=0).to(DEVICE)
    digest = page_digests(pool, torch.tensor([-1, 3], device=DEVICE)).cpu()
    assert torch.equal(digest, reference(torch.zeros(2, 64, 8)))
