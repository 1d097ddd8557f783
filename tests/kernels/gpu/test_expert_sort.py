"""Choices are sorted by expert into tiles, in slot order, and those of nobody take no place."""

from __future__ import annotations

import pytest
import torch

from tenantry_kernels.gpu.expert_sort import (
    Tiles,
    expert_sort,
    expert_sort_reference,
    most_tiles,
)


def some_choices(num_rows: int, num_choices: int, num_experts: int) -> torch.Tensor:
    scores = torch.rand(num_rows, num_experts, generator=torch.Generator().manual_seed(num_rows))
    return scores.topk(num_choices, -1).indices


def assert_is(tiles: Tiles, expected: tuple[torch.Tensor, torch.Tensor]) -> None:
    slots, experts = expected
    num_tiles = experts.numel()
    assert tiles.slot is not None and tiles.count is not None
    assert tiles.count.item() == num_tiles <= tiles.max_tiles
    assert torch.equal(tiles.expert[:num_tiles].long(), experts)
    assert torch.equal(tiles.slot.view(-1, tiles.num_rows)[:num_tiles].long(), slots)


# 300 rows are more slots than a program looks at in one go
@pytest.mark.parametrize(
    ("rows", "choices", "experts", "tile_rows"),
    [(2, 1, 1, 8), (2, 2, 8, 8), (37, 3, 5, 16), (300, 4, 6, 64), (5, 8, 24, 16)],
)
def test_slots_are_sorted_by_expert_into_tiles(
    rows: int, choices: int, experts: int, tile_rows: int
) -> None:
    chosen = some_choices(rows, choices, experts)
    assert_is(
        expert_sort(chosen, experts, tile_rows), expert_sort_reference(chosen, experts, tile_rows)
    )


def test_numbers_that_are_no_expert_take_no_place() -> None:
    chosen = torch.tensor([[-1, 2], [5, 4], [2, 1 << 20], [-(1 << 20), 0]], dtype=torch.int32)
    tiles = expert_sort(chosen, 5, 8)
    nobody = [-1] * 5
    assert_is(
        tiles,
        (
            torch.tensor([[7, -1, -1, *nobody], [1, 4, -1, *nobody], [3, -1, -1, *nobody]]),
            torch.tensor([0, 2, 4]),
        ),
    )


def test_rows_that_all_failed_leave_no_tile() -> None:
    tiles = expert_sort(torch.full((4, 2), -1), 3, 8)
    assert tiles.count is not None and tiles.count.item() == 0


def test_one_expert_may_get_every_row() -> None:
    chosen = torch.full((33, 1), 2)
    assert_is(expert_sort(chosen, 4, 8), expert_sort_reference(chosen, 4, 8))


def test_a_single_row_needs_no_sorting() -> None:
    tiles = expert_sort(torch.tensor([[7, 3, 5]]), 8, 16)
    assert tiles.slot is None and tiles.count is None
    assert tiles.expert.tolist() == [7, 3, 5] and tiles.max_tiles == 3


def test_there_is_room_for_the_worst_spread_of_slots() -> None:
    # 9 slots of 3 experts in tiles of 4: at worst 7 + 1 + 1 or 5 + 3 + 1, four tiles
    assert most_tiles(9, 3, 4) == 4
    # fewer slots than experts: one tile each
    assert most_tiles(5, 100, 16) == 5


def test_a_tile_has_a_power_of_two_rows() -> None:
    with pytest.raises(ValueError, match="24"):
        expert_sort(torch.zeros(2, 2, dtype=torch.int64), 4, 24)
