"""The digest against its definition, in Python's own integers."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels.cpu import page_digest as compiled
from tenantry_kernels.page_digest import bind, page_digests

MASK = (1 << 64) - 1


def mix(word: int) -> int:
    word ^= word >> 33
    word = word * 0xFF51AFD7ED558CCD & MASK
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 & MASK
    return word ^ word >> 33


def digest_of(page: bytes) -> int:
    words = [int.from_bytes(page[at : at + 8], "little") for at in range(0, len(page), 8)]
    total = sum(mix(word + (i + 1) * 0x9E3779B97F4A7C15 & MASK) for i, word in enumerate(words))
    return mix(total + len(page) & MASK)


def random_pages(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_digests_follow_the_table() -> None:
    pages = random_pages(5, 24 * 8)
    expected = [digest_of(bytes(page.tolist())) for page in pages]
    assert [digest & MASK for digest in page_digests(pages).tolist()] == expected


def test_the_dtype_and_the_shape_of_a_page_do_not_matter() -> None:
    pages = random_pages(3, 512)
    other = pages.view(torch.bfloat16).view(3, 4, 64)
    assert torch.equal(page_digests(pages), page_digests(other))


def test_every_bit_counts() -> None:
    page = random_pages(1, 64)
    flipped = page.repeat(512, 1)
    for bit in range(512):
        flipped[bit, bit // 8] ^= 1 << bit % 8
    assert len({*page_digests(flipped).tolist(), *page_digests(page).tolist()}) == 513


def test_exchanged_words_and_padding_count() -> None:
    page = random_pages(1, 64)
    exchanged = page.view(1, 8, 8)[:, [1, 0, 2, 3, 4, 5, 6, 7]]
    padded = torch.cat([page, torch.zeros(1, 8, dtype=torch.uint8)], 1)
    digests = [int(page_digests(each)) for each in (page, exchanged, padded)]
    assert len(set(digests)) == 3


def test_a_bound_digest_depends_on_every_field_and_their_order() -> None:
    bound = [bind(5, 1, 2), bind(5, 2, 1), bind(5, 1), bind(5), bind(6, 1, 2), bind(5, 1, -2)]
    assert len(set(bound)) == 6
    assert all(-(1 << 63) <= value < 1 << 63 for value in bound)


@pytest.mark.parametrize("shape", [(1, 8), (3, 512), (2, 64, 580)])
def test_the_compiled_loop_gives_the_same(shape: tuple[int, ...]) -> None:
    pages = random_pages(*shape)
    assert torch.equal(compiled.page_digests(pages), page_digests(pages))
