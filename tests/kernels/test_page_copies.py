"""Pages are copied, digested and bound all in one call, as one after the other is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tenantry_kernels.cpu.page_copies import PageCopies
from tenantry_kernels.cpu.page_digest import bind_digests
from tenantry_kernels.page_digest import bind, page_digests

NUM_PAGES = 7


def pools_of(*page_shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.zeros((NUM_PAGES, *shape), dtype=torch.bfloat16) for shape in page_shapes]


def random_pages(num_pages: int, num_bytes: int) -> list[bytearray]:
    generator = torch.Generator().manual_seed(num_pages)
    drawn = torch.randint(256, (num_pages, num_bytes), dtype=torch.uint8, generator=generator)
    return [bytearray(page) for page in drawn.tolist()]


# one page, several; a pool of one word a page beside larger ones
@pytest.mark.parametrize("places", [[3], [6, 0, 2]])
@pytest.mark.parametrize("shapes", [[(4,)], [(8, 12), (4,), (2, 2, 6)]])
def test_pages_land_where_they_belong_and_nowhere_else(
    places: list[int], shapes: list[tuple[int, ...]]
) -> None:
    pools = pools_of(*shapes)
    copies = PageCopies(pools)
    sizes = [pool[0].nbytes for pool in pools]
    pages = random_pages(len(places), sum(sizes))

    data_SB, digest_S = copies.gather([memoryview(page) for page in pages])
    copies.scatter(data_SB, np.array(places, np.int64))

    sent = torch.stack([torch.frombuffer(page, dtype=torch.uint8) for page in pages])
    assert torch.equal(data_SB, sent)
    assert digest_S == page_digests(sent).tolist()
    for pool, part_SB in zip(pools, sent.split(sizes, 1), strict=True):
        expected = torch.zeros_like(pool)
        expected[places] = part_SB.contiguous().view(torch.bfloat16).view(-1, *pool.shape[1:])
        assert torch.equal(pool.view(torch.int16), expected.view(torch.int16))


def test_what_is_written_is_what_was_digested() -> None:
    """Whoever owns the memory that a page came in may write to it in between."""
    (pool,) = pools_of((8,))
    copies = PageCopies([pool])
    (page,) = random_pages(1, 16)
    sent = bytes(page)

    data_SB, _ = copies.gather([memoryview(page)])
    page[:] = bytes(16)
    copies.scatter(data_SB, np.array([1], np.int64))

    assert bytes(pool[1].view(torch.uint8).tolist()) == sent


def test_more_pages_than_before_have_room_too() -> None:
    copies = PageCopies(pools_of((4,)))
    for num_pages in (1, 5, 2):
        pages = random_pages(num_pages, 8)
        data_SB, _ = copies.gather([memoryview(page) for page in pages])
        assert [bytes(page) for page in data_SB.tolist()] == pages


@pytest.mark.parametrize("num_bytes", [8, 24])
def test_pages_of_another_size_are_a_mistake(num_bytes: int) -> None:
    copies = PageCopies(pools_of((8,)))
    with pytest.raises(AssertionError, match="another size"):
        copies.gather([memoryview(bytes(16)), memoryview(bytes(num_bytes))])


@pytest.mark.parametrize("place", [-1, NUM_PAGES])
def test_a_page_that_no_pool_has_is_a_mistake(place: int) -> None:
    copies = PageCopies(pools_of((8,)))
    data_SB, _ = copies.gather([memoryview(bytes(16))])
    with pytest.raises(AssertionError):
        copies.scatter(data_SB, np.array([place], np.int64))


def test_many_digests_are_bound_like_one() -> None:
    fields = [(1, 0, 0, -(1 << 63)), (2, 5, 1, (1 << 63) - 1), (-3, 7, 0, 0)]
    digests = [0, -1, 1 << 62]

    bound = bind_digests(digests, np.array(fields, np.int64))

    assert bound == [bind(digest, *each) for digest, each in zip(digests, fields, strict=True)]
