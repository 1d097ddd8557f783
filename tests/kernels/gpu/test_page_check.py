"""The page check on the device against its reference, and against cases worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from support.examples import examples
from support.latent_pages import DEVICE
from tenantry_kernels import page_check as reference
from tenantry_kernels.gpu import page_check as kernel

CHECKS = [reference, kernel]
NAMES = ["reference", "kernel"]

MINE, THEIRS, PUBLIC = 7, 9, 0
NUM_PAGES = 12


def tag(owner: int, generation: int) -> int:
    value = owner << 48 | generation
    return value - (1 << 64) if value >> 63 else value


def fill(page: int, tokens: int) -> int:
    return page << 32 | tokens


@dataclass
class Pool:
    """Twelve pages; sequence 0 holds pages 3, 5, 2 with 150 tokens, sequence 1 page 8 with 64."""

    tags: list[int] = field(
        default_factory=lambda: [tag(MINE, 100 + page) for page in range(NUM_PAGES + 1)]
    )
    fills: list[int] = field(default_factory=lambda: [0] * (NUM_PAGES + 1))
    table: list[list[int]] = field(default_factory=lambda: [[3, 5, 2, 0], [8, 0, 0, 0]])
    expected: list[list[int]] = field(default_factory=list)
    owner: list[int] = field(default_factory=lambda: [MINE, MINE])
    filled: list[int] = field(default_factory=lambda: [150, 64])
    end: list[int] = field(default_factory=lambda: [151, 64])

    def __post_init__(self) -> None:
        self.fills[3], self.fills[5], self.fills[2] = fill(0, 64), fill(1, 64), fill(2, 22)
        self.fills[8] = fill(0, 64)
        self.expected = [[self.tags[page] for page in row] for row in self.table]

    def fault(
        self, check: Any, first_page: list[int] | None = None, before: tuple[int, int] = (0, 0)
    ) -> list[int]:
        fault = whole(list(before))
        check.check_pages(
            fault,
            tag_P=whole(self.tags),
            fill_P=whole(self.fills),
            page_table_SL=whole(self.table),
            expected_tag_SL=whole(self.expected),
            owner_S=whole(self.owner),
            filled_S=whole(self.filled),
            end_S=whole(self.end),
            first_page_S=None if first_page is None else whole(first_page),
        )
        values: list[int] = fault.tolist()
        return values


def whole(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=DEVICE)


def code(page: int, bits: int) -> int:
    return (page + 1) << 8 | bits


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_pages_as_their_sequences_hold_them_pass(check: Any) -> None:
    assert Pool().fault(check) == [0, 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_page_that_was_tagged_again_fails(check: Any) -> None:
    pool = Pool()
    pool.tags[5] = tag(MINE, 999)
    assert pool.fault(check) == [code(1, reference.BAD_TAG), 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_page_of_another_owner_fails_even_where_it_is_expected(check: Any) -> None:
    pool = Pool()
    pool.tags[2] = pool.expected[0][2] = tag(THEIRS, 102)
    assert pool.fault(check) == [code(2, reference.BAD_OWNER), 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_public_page_passes_for_everybody(check: Any) -> None:
    pool = Pool()
    pool.tags[3] = pool.expected[0][0] = tag(PUBLIC, 103)
    pool.tags[8] = pool.expected[1][0] = tag(0x8000, 108)
    pool.owner[1] = 0x8000
    assert pool.fault(check) == [0, 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_swapped_pages_fail_by_their_logical_index(check: Any) -> None:
    pool = Pool()
    pool.table[0][:2] = [5, 3]
    pool.expected[0][:2] = [pool.tags[5], pool.tags[3]]
    assert pool.fault(check) == [code(0, reference.BAD_FILL), 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
@pytest.mark.parametrize("index", [-1, NUM_PAGES, 1 << 40])
def test_an_index_outside_the_pool_fails(check: Any, index: int) -> None:
    pool = Pool()
    pool.table[1][0] = index
    assert pool.fault(check) == [0, code(0, reference.BAD_INDEX)]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_lost_append_shows_after_the_step(check: Any) -> None:
    pool = Pool(filled=[151, 64])
    assert pool.fault(check, first_page=[2, 1]) == [code(2, reference.BAD_FILL), 0]
    pool.fills[2] = fill(2, 23)
    assert pool.fault(check, first_page=[2, 1]) == [0, 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_fresh_page_must_be_empty(check: Any) -> None:
    pool = Pool(end=[200, 64])
    pool.expected[0][3] = pool.tags[0]
    assert pool.fault(check) == [0, 0]
    pool.fills[0] = fill(3, 1)
    assert pool.fault(check) == [code(3, reference.BAD_FILL), 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_pages_before_the_first_wanted_are_not_looked_at(check: Any) -> None:
    pool = Pool()
    pool.tags[3] = tag(THEIRS, 1)
    assert pool.fault(check, first_page=[1, 0]) == [0, 0]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_a_fault_is_never_cleared_or_replaced(check: Any) -> None:
    pool = Pool()
    pool.tags[8] = tag(THEIRS, 1)
    assert pool.fault(check, before=(5, 6)) == [5, 6]


@pytest.mark.parametrize("check", CHECKS, ids=NAMES)
def test_failed_sequences_are_kept_off_every_page(check: Any) -> None:
    table, length, slot = check.mask_batch(
        whole([0, 777, 0]),
        page_table_SL=whole([[3, 5], [2, 8], [4, 0]]),
        read_len_S=whole([70, 80, 3]),
        write_slot_T=whole([133, 134, 135, 136]),
        sequence_T=whole([0, 1, 1, 2]),
        sink_page=NUM_PAGES,
    )
    assert table.tolist() == [[3, 5], [NUM_PAGES, NUM_PAGES], [4, 0]]
    assert length.tolist() == [70, 0, 3]
    assert slot.tolist() == [133, reference.NO_SLOT, reference.NO_SLOT, 136]


@examples(0.4)
@given(
    seed=st.integers(0, 1 << 30),
    num_sequences=st.integers(1, 5),
    # past one block of 1,024 columns too
    num_columns=st.sampled_from([1, 3, 40, 1500]),
    num_faults=st.integers(0, 6),
)
def test_any_batch_gets_the_reference_faults(
    seed: int, num_sequences: int, num_columns: int, num_faults: int
) -> None:
    generator = torch.Generator().manual_seed(seed)

    def random(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=generator)

    num_pages = num_sequences * num_columns
    table = torch.randperm(num_pages, generator=generator).view(num_sequences, num_columns)
    owner = random(1 << 16, num_sequences)
    tags = random(1 << 48, num_pages + 1)
    filled = random(num_columns * 64 + 1, num_sequences)
    end = torch.minimum(filled + random(130, num_sequences), torch.tensor(num_columns * 64))
    column = torch.arange(num_columns)
    tags[table] |= owner[:, None] << 48
    tokens = (filled[:, None] - column * 64).clamp(0, 64)
    fills = torch.zeros(num_pages + 1, dtype=torch.int64)
    fills[table] = torch.where(tokens > 0, column << 32 | tokens, 0)
    expected = tags[table]
    for _ in range(num_faults):
        array = (tags, fills, table.view(-1), expected.view(-1), owner)[int(random(5, 1))]
        array[int(random(len(array), 1))] ^= 1 << int(random(63, 1))
    fault = random(2, num_sequences)
    arguments: dict[str, Any] = {
        "tag_P": tags,
        "fill_P": fills,
        "page_table_SL": table,
        "expected_tag_SL": expected,
        "owner_S": owner,
        "filled_S": filled,
        "end_S": end,
        "first_page_S": random(num_columns + 1, num_sequences) if seed % 2 else None,
    }
    theirs = fault.clone()
    reference.check_pages(theirs, **arguments)
    ours = fault.to(DEVICE)
    on_device: dict[str, Any] = {
        name: it if it is None else it.to(DEVICE) for name, it in arguments.items()
    }
    kernel.check_pages(ours, **on_device)
    assert ours.tolist() == theirs.tolist()
