"""FP8 experts on the device against the loop over experts with dequantized matrices."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from support.latent_pages import DEVICE, noise
from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.gpu.fp8_experts import Fp8Stack, fp8_experts
from tenantry_runtime.models.quantize import dequantize_fp8, quantize_fp8

# sums of BF16 products, rounded once more on the way
TOLERANCE = 2e-2
EXPERTS, CHOICES = 5, 2

Experts = tuple[tuple[Fp8Stack, Fp8Stack], list[tuple[torch.Tensor, torch.Tensor]]]


def some_experts(hidden: int, inner: int) -> Experts:
    """Return stacks, and the same dequantized, as float32."""
    kinds = {"gate_up": (2, inner, hidden), "down": (1, hidden, inner)}
    stacks, dense = [], []
    for kind, (parts, outputs, columns) in kinds.items():
        matrices = []
        for number in range(EXPERTS * parts):
            weight = noise(outputs, columns, seed=len(kind) * 100 + number) * columns**-0.5
            # blocks of different sizes, so that a scale of the wrong block shows
            weight *= 1 + (torch.arange(outputs)[:, None] // 128 + torch.arange(columns) // 128)
            matrices.append(quantize_fp8(weight))
        stacks.append(
            Fp8Stack(
                *(
                    torch.stack(tensors).unflatten(0, (EXPERTS, parts)).to(DEVICE)
                    for tensors in zip(*matrices, strict=True)
                )
            )
        )
        wide = [dequantize_fp8(matrix) for matrix in matrices]
        dense.append([torch.cat(wide[n : n + parts]) for n in range(0, len(wide), parts)])
    gate_up, down = stacks
    return (gate_up, down), list(zip(*dense, strict=True))


def expected(
    x: torch.Tensor,
    chosen: torch.Tensor,
    weight: torch.Tensor,
    dense: list[tuple[torch.Tensor, torch.Tensor]],
) -> torch.Tensor:
    def expert(number: int, rows: torch.Tensor) -> torch.Tensor:
        gate_up, down = dense[number]
        return linear(swiglu(linear(rows, gate_up)), down)

    return route_to_experts(x.float().cpu(), chosen.cpu(), weight.cpu(), EXPERTS, expert)


def choices(num_rows: int) -> torch.Tensor:
    order = noise(num_rows, EXPERTS, seed=3).argsort(-1)
    return order[:, :CHOICES].to(DEVICE)


# one row, which is not sorted; tiles that are full, not full and several to an expert; whole blocks,
# blocks that begin anew within a tile of outputs, and widths that fill none
@pytest.mark.parametrize("num_rows", [1, 3, 40])
@pytest.mark.parametrize("tile_rows", [None, 16, 64])
@pytest.mark.parametrize(("hidden", "inner"), [(256, 128), (128, 192), (200, 72)])
def test_experts_are_applied_to_the_rows_that_chose_them(
    num_rows: int, tile_rows: int | None, hidden: int, inner: int
) -> None:
    x = noise(num_rows, hidden, seed=4).bfloat16().to(DEVICE)
    stacks, dense = some_experts(hidden, inner)
    chosen, weight = choices(num_rows), noise(num_rows, CHOICES, seed=5).abs().to(DEVICE)
    out = fp8_experts(x, chosen.int(), weight, *stacks, tile_rows=tile_rows).float().cpu()
    reference = expected(x, chosen, weight, dense)
    largest = reference.abs().max().item()
    torch.testing.assert_close(out, reference, rtol=TOLERANCE, atol=TOLERANCE * largest)


def test_choices_of_no_expert_add_exactly_nothing() -> None:
    x = noise(3, 128, seed=4).bfloat16().to(DEVICE)
    stacks, dense = some_experts(128, 64)
    chosen = torch.tensor([[-1, -1], [2, -1], [0, EXPERTS]], device=DEVICE)
    weight = torch.full((3, 2), torch.nan, device=DEVICE)
    weight[1, 0], weight[2, 0] = 0.5, 0.25
    out = fp8_experts(x, chosen, weight, *stacks).float().cpu()
    assert (out[0] == 0).all()
    alone = torch.tensor([[0, 0], [2, 2], [0, 0]])
    halves = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.25, 0.0]])
    reference = expected(x, alone, halves, dense)
    largest = reference.abs().max().item()
    torch.testing.assert_close(out, reference, rtol=TOLERANCE, atol=TOLERANCE * largest)


def test_with_a_given_tile_a_rows_bits_do_not_depend_on_its_company() -> None:
    x = noise(9, 128, seed=4).bfloat16().to(DEVICE)
    stacks, _ = some_experts(128, 64)
    chosen, weight = choices(9), noise(9, CHOICES, seed=5).to(DEVICE)
    together = fp8_experts(x, chosen, weight, *stacks, tile_rows=16)
    for row in range(9):
        only = slice(row, row + 1)
        alone = fp8_experts(x[only], chosen[only], weight[only], *stacks, tile_rows=16)
        assert torch.equal(alone[0], together[row])


def test_scales_that_are_not_those_of_the_blocks_are_refused() -> None:
    x = noise(2, 200, seed=4).bfloat16().to(DEVICE)
    (gate_up, down), _ = some_experts(200, 72)
    short = gate_up._replace(scale_inv=gate_up.scale_inv[..., :1].contiguous())
    chosen, weight = choices(2), noise(2, CHOICES, seed=5).to(DEVICE)
    with pytest.raises(ValueError, match=r"\(5, 2, 1, 2\) blocks have scales \(5, 2, 1, 1\)"):
        fp8_experts(x, chosen, weight, short, down)
    with pytest.raises(ValueError, match="have 200 columns, the rows 128"):
        fp8_experts(x[:, :128], chosen, weight, gate_up, down)
