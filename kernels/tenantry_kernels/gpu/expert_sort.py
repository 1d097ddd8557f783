"""Sort choices by expert into tiles of rows, on the device and in one launch.

A slot is one (row, choice) pair, numbered t * K + k. An expert's slots fill whole tiles, in slot
order, so that a program of a grouped product reads one expert's weights for a whole tile.

| tensor | shape | dtype | what |
|---|---|---|---|
| expert_TK | [T, K] | int32 or int64 | chosen experts; a number outside 0..E-1 takes no place: a row that failed, or an empty one |
| slot | [B * R] | int32 | slots by tile; -1 where a tile is not full; contents after the tiles in use are undefined |
| expert | [B] | int32 | each tile's expert; undefined after the tiles in use |
| count | [1] | int32 | tiles in use |

T rows, K choices per row, E experts, R rows per tile, B tiles that there can be at most.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

# slots that a program looks at in one go, at most
_MOST_SLOTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Which slots a grouped product's programs take."""

    num_rows: int
    """Rows per tile."""
    max_tiles: int
    """Tiles there can be at most; known without asking the device."""
    expert: torch.Tensor
    slot: torch.Tensor | None
    """None: tile i is slot i alone, and `expert` is as it was chosen."""
    count: torch.Tensor | None
    """None: all of them."""


@triton.jit(do_not_specialize=["num_slots"])
def _expert_sort_kernel(
    CHOSEN,
    SLOT,
    TILE_EXPERT,
    COUNT,
    num_slots,
    NUM_EXPERTS: tl.constexpr,
    NUM_BINS: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    MOST_TILES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program e counts everybody's slots, then places those of expert e."""
    i_expert = tl.program_id(0)
    o_slot = tl.arange(0, BLOCK)
    o_bin = tl.arange(0, NUM_BINS)
    count = tl.zeros([NUM_BINS], tl.int32)
    for start in range(0, num_slots, BLOCK):
        chosen = tl.load(CHOSEN + start + o_slot, mask=start + o_slot < num_slots, other=-1)
        m_valid = (chosen >= 0) & (chosen < NUM_EXPERTS)
        count += tl.histogram(tl.where(m_valid, chosen, 0).to(tl.int32), NUM_BINS, mask=m_valid)
    num_tiles = tl.cdiv(count, TILE_ROWS)
    first_tile = tl.sum(tl.where(o_bin < i_expert, num_tiles, 0))
    own_tiles = tl.sum(tl.where(o_bin == i_expert, num_tiles, 0))
    first = first_tile * TILE_ROWS
    placed = 0
    for start in range(0, num_slots, BLOCK):
        chosen = tl.load(CHOSEN + start + o_slot, mask=start + o_slot < num_slots, other=-1)
        m_own = chosen == i_expert
        rank = placed + tl.cumsum(m_own.to(tl.int32), 0) - 1
        tl.store(SLOT + first + rank, start + o_slot, mask=m_own)
        placed += tl.sum(m_own.to(tl.int32))
    o_empty = placed + tl.arange(0, TILE_ROWS)
    tl.store(SLOT + first + o_empty, -1, mask=o_empty < own_tiles * TILE_ROWS)
    o_tile = tl.arange(0, MOST_TILES)
    tl.store(TILE_EXPERT + first_tile + o_tile, i_expert, mask=o_tile < own_tiles)
    if i_expert == 0:
        tl.store(COUNT, tl.sum(num_tiles))


@triton.jit
def tile_slots(TILE_SLOT, i_tile, TILE_ROWS: tl.constexpr):
    """Return the slots [TILE_ROWS] of a tile in use, -1 where it is not full."""
    o_row = tl.arange(0, TILE_ROWS)
    if TILE_SLOT is None:
        slot = tl.where(o_row == 0, i_tile, -1)
    else:
        slot = tl.load(TILE_SLOT + i_tile * TILE_ROWS + o_row)
    return slot.to(tl.int64)


def expert_sort(expert_TK: torch.Tensor, num_experts: int, tile_rows: int) -> Tiles:
    """Return the tiles of a batch's choices; a single row's need no sorting and launch nothing."""
    if tile_rows & (tile_rows - 1):
        raise ValueError(f"a tile has a power of two rows, not {tile_rows}")
    num_slots = expert_TK.numel()
    chosen = expert_TK.contiguous()
    if expert_TK.shape[0] == 1:
        return Tiles(
            num_rows=tile_rows, max_tiles=num_slots, expert=chosen.view(-1), slot=None, count=None
        )
    max_tiles = most_tiles(num_slots, num_experts, tile_rows)
    slot = chosen.new_empty(max_tiles * tile_rows, dtype=torch.int32)
    expert = chosen.new_empty(max_tiles, dtype=torch.int32)
    count = chosen.new_empty(1, dtype=torch.int32)
    _expert_sort_kernel[(num_experts,)](
        chosen,
        slot,
        expert,
        count,
        num_slots,
        NUM_EXPERTS=num_experts,
        NUM_BINS=triton.next_power_of_2(num_experts),
        TILE_ROWS=tile_rows,
        MOST_TILES=triton.next_power_of_2(triton.cdiv(num_slots, tile_rows)),
        BLOCK=min(_MOST_SLOTS, max(128, triton.next_power_of_2(num_slots))),
        num_warps=4,
    )
    return Tiles(num_rows=tile_rows, max_tiles=max_tiles, expert=expert, slot=slot, count=count)


def most_tiles(num_slots: int, num_experts: int, tile_rows: int) -> int:
    """Return how many tiles slots can fill at most: each expert with a slot wastes up to R - 1 rows."""
    return (num_slots + min(num_slots, num_experts) * (tile_rows - 1)) // tile_rows


def expert_sort_reference(
    expert_TK: torch.Tensor, num_experts: int, tile_rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return slots [tiles, R], -1 where there is none, and experts [tiles], of the tiles in use."""
    chosen = expert_TK.flatten().tolist()
    slots: list[list[int]] = []
    experts: list[int] = []
    for expert in range(num_experts):
        own = [slot for slot, choice in enumerate(chosen) if choice == expert]
        for start in range(0, len(own), tile_rows):
            tile = own[start : start + tile_rows]
            slots.append(tile + [-1] * (tile_rows - len(tile)))
            experts.append(expert)
    return torch.tensor(slots).view(-1, tile_rows), torch.tensor(experts, dtype=torch.int64)
