"""Compiled ops against torch's forms and against sums written out in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from tenantry_kernels.cpu import kernels, ops
from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.paged_mla import decode_attention, gather_rows, slots_of
from tenantry_kernels.sparse_index import index_scores_batch

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
# one row, fewer than a tile, a tile, tiles and a rest
ROWS = pytest.mark.parametrize("num_rows", [1, 3, 4, 23])
# nothing, one token, both sides of a page's edge, several pages
LENGTHS = (0, 1, 63, 64, 65, 129)
PAGE_TOKENS = 64


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tolerance(dtype: torch.dtype) -> dict[str, Any]:
    """Return what the result's own rounding costs."""
    return {"rtol": 0, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2**-7, "atol": 2**-7}


class Pages:
    """Sequences in a pool whose other slots are all poison, with pages in no order."""

    def __init__(self, lengths: Sequence[int], width: int, dtype: torch.dtype) -> None:
        num_columns = -(-max(*lengths, 1) // PAGE_TOKENS)
        order = torch.randperm(
            len(lengths) * num_columns, generator=torch.Generator().manual_seed(5)
        )
        self.page_table = 1 + order.view(len(lengths), num_columns)
        self.pool = torch.full((len(order) + 2, PAGE_TOKENS, width), torch.nan, dtype=dtype)
        self.lengths = lengths
        flat = self.pool.view(-1, width)
        for s, length in enumerate(lengths):
            flat[self.slots(s, range(length))] = noise(length, width, seed=20 + s).to(dtype)

    def slots(self, sequence: int, positions: Sequence[int]) -> torch.Tensor:
        return slots_of(
            self.page_table[sequence],
            torch.tensor(list(positions), dtype=torch.int64),
            PAGE_TOKENS,
        )

    def read(self, sequence: int, positions: Sequence[int]) -> torch.Tensor:
        return gather_rows(self.pool, self.slots(sequence, positions))

    def rows(self) -> ops.DecodeRows:
        """Return the sequences' rows in reverse, each after a row that is nobody's."""
        count = len(self.lengths)
        return ops.DecodeRows(
            row_S=np.arange(count)[::-1] * 2 + 1,
            page_table_SP=self.page_table.numpy(),
            read_len_S=np.array(self.lengths),
        )


def latent_sums(q_NC: torch.Tensor, kv_KC: torch.Tensor, scale: float, dim: int) -> torch.Tensor:
    """Return softmax(scale * q . kv) @ kv[:dim] in float64; 0 without keys."""
    if not len(kv_KC):
        return torch.zeros(q_NC.shape[0], dim, dtype=torch.float64)
    weight = (scale * q_NC.double() @ kv_KC.double().T).exp()
    return weight @ kv_KC[:, :dim].double() / weight.sum(-1, keepdim=True)


@DTYPES
@ROWS
@pytest.mark.parametrize(("width", "outputs"), [(1, 1), (96, 37), (33, 16)])
def test_a_product_is_that_of_float64(
    num_rows: int, width: int, outputs: int, dtype: torch.dtype
) -> None:
    x, weight = noise(num_rows, width).to(dtype), noise(outputs, width, seed=1).to(dtype)
    expected = (x.double() @ weight.double().T).to(dtype)
    torch.testing.assert_close(ops.linear(x, weight), expected, **tolerance(dtype))


@DTYPES
@ROWS
def test_experts_are_those_of_torch(num_rows: int, dtype: torch.dtype) -> None:
    x, weight = noise(num_rows, 20).to(dtype), noise(num_rows, 3, seed=1)
    gate_up, down = noise(6, 22, 20, seed=2).to(dtype), noise(6, 20, 11, seed=3).to(dtype)
    # the last expert is nobody's
    chosen = noise(num_rows, 5, seed=4).topk(3, -1).indices
    expected = route_to_experts(
        x.float(),
        chosen,
        weight,
        6,
        lambda e, rows: linear(swiglu(linear(rows, gate_up[e].float())), down[e].float()),
    )
    routed = ops.routed_experts(x, chosen, weight, gate_up, down)
    torch.testing.assert_close(routed.float(), expected, rtol=tolerance(dtype)["rtol"], atol=1e-3)
    assert routed.dtype == dtype


@DTYPES
def test_a_gate_is_that_of_float64(dtype: torch.dtype) -> None:
    gate_up = torch.cat((torch.linspace(-100, 100, 401), noise(401)))[None].to(dtype)
    gate, up = gate_up.double().chunk(2, -1)
    expected = (gate / (1 + (-gate).exp()) * up).to(dtype)
    rtol = max(tolerance(dtype)["rtol"], 1e-6)
    torch.testing.assert_close(ops.swiglu(gate_up), expected, rtol=rtol, atol=1e-30)


@DTYPES
def test_a_norm_is_that_of_float64(dtype: torch.dtype) -> None:
    x, weight = 3 * noise(5, 33).to(dtype), noise(33, seed=1).to(dtype)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 0.25).sqrt() * weight.double()
    normed = ops.rms_norm(x, weight, 0.25)
    torch.testing.assert_close(normed, expected.to(dtype), **tolerance(dtype))


@pytest.mark.parametrize("is_normalized", [True, False])
@ROWS
def test_a_router_chooses_by_bias_and_weighs_without(num_rows: int, is_normalized: bool) -> None:
    x, weight, bias = noise(num_rows, 12), noise(7, 12, seed=1), noise(7, seed=2)
    score = (x.double() @ weight.double().T).sigmoid()
    chosen = (score + bias).topk(3, -1).indices
    factor = score.gather(1, chosen)
    if is_normalized:
        factor /= factor.sum(-1, keepdim=True)
    experts, weights = ops.route(x, weight, bias, 3, is_normalized=is_normalized, scaling=2.5)
    assert torch.equal(experts, chosen)
    torch.testing.assert_close(weights, 2.5 * factor.float())


def test_a_router_gives_a_row_that_is_not_a_number_different_experts_and_no_weight() -> None:
    x = torch.full((1, 4), torch.nan)
    experts, weights = ops.route(x, noise(5, 4), torch.zeros(5), 3, is_normalized=True, scaling=1.0)
    assert len(set(experts[0].tolist())) == 3 and set(experts[0].tolist()) <= set(range(5))
    assert weights.isnan().all()


@DTYPES
@pytest.mark.parametrize("num_heads", [1, 4, 5])
def test_attention_reads_each_sequences_own_pages_to_its_own_length(
    num_heads: int, dtype: torch.dtype
) -> None:
    pages = Pages(LENGTHS, 21, dtype)
    rows = pages.rows()
    q = noise(2 * len(LENGTHS), num_heads, 21)
    sums = torch.full((2 * len(LENGTHS), num_heads, 15), 7.0)
    ops.decode_attention(q, pages.pool, rows, None, 0.2, sums)
    for s, length in enumerate(LENGTHS):
        row = int(rows.row_S[s])
        expected = latent_sums(q[row], pages.read(s, range(length)), 0.2, 15).float()
        torch.testing.assert_close(sums[row], expected, rtol=0, atol=1e-5)
        if length:
            kv = pages.read(s, range(length))[None]
            theirs = decode_attention(q[row][None], kv, torch.zeros(1, length), 0.2, 15)
            torch.testing.assert_close(sums[row], theirs[0], rtol=0, atol=1e-5)
        else:
            assert not sums[row].any()
        assert (sums[row - 1] == 7.0).all()


@DTYPES
def test_attention_reads_the_chosen_positions_only(dtype: torch.dtype) -> None:
    lengths = (130, 5, 64, 1)
    pages = Pages(lengths, 12, dtype)
    choices: tuple[list[int], ...] = ([129, 0, 64, 63, 7], [4], [], [0])
    # what is not chosen is poison too
    kept = {s: pages.read(s, choice).clone() for s, choice in enumerate(choices)}
    pages.pool.fill_(torch.nan)
    rows = pages.rows()
    q, position = noise(8, 3, 12), torch.full((8, 6), -1)
    for s, choice in enumerate(choices):
        pages.pool.view(-1, 12)[pages.slots(s, choice)] = kept[s].to(dtype)
        # nothing stands at the front, in between or behind
        position[rows.row_S[s], 1 : 1 + len(choice)] = torch.tensor(choice, dtype=torch.int64)
    sums = torch.empty(8, 3, 9)
    ops.decode_attention(q, pages.pool, rows, position, 0.5, sums)
    for s, choice in enumerate(choices):
        row = int(rows.row_S[s])
        expected = latent_sums(q[row], kept[s], 0.5, 9).float()
        torch.testing.assert_close(sums[row], expected, rtol=0, atol=1e-5)
        assert choice or not sums[row].any()


def test_attention_takes_large_scores_without_overflow() -> None:
    pages = Pages((2,), 3, torch.float32)
    flat = pages.pool.view(-1, 3)
    flat[pages.slots(0, range(2))] = torch.tensor([[1.0, 0.0, 500.0], [2.0, 0.0, 499.0]])
    sums = torch.empty(2, 1, 2)
    q = torch.tensor([0.0, 0.0, 500.0]).expand(2, 1, 3)
    ops.decode_attention(q, pages.pool, pages.rows(), None, 1.0, sums)
    torch.testing.assert_close(sums[1], torch.tensor([[1.0, 0.0]]))


def test_a_sequences_own_poison_reaches_its_sums_and_no_others() -> None:
    pages = Pages((70, 70), 8, torch.bfloat16)
    rows, q = pages.rows(), noise(4, 4, 8)
    clean, spoiled = torch.empty(4, 4, 6), torch.empty(4, 4, 6)
    ops.decode_attention(q, pages.pool, rows, None, 1.0, clean)
    pages.pool.view(-1, 8)[pages.slots(0, [66])] = torch.nan
    ops.decode_attention(q, pages.pool, rows, None, 1.0, spoiled)
    assert spoiled[rows.row_S[0]].isnan().all()
    assert torch.equal(spoiled[rows.row_S[1]], clean[rows.row_S[1]])


@pytest.mark.parametrize(
    ("page", "read_len"), [(2, 64), (-1, 64), (1, 65)], ids=["past the pool", "before it", "none"]
)
def test_a_page_that_is_not_there_is_an_error(page: int, read_len: int) -> None:
    rows = ops.DecodeRows(
        row_S=np.array([0]), page_table_SP=np.array([[page]]), read_len_S=np.array([read_len])
    )
    pool, sums = torch.zeros(2, PAGE_TOKENS, 6), torch.zeros(1, 1, 4)
    with pytest.raises(IndexError, match="page"):
        ops.decode_attention(noise(1, 1, 6), pool, rows, None, 1.0, sums)
    with pytest.raises(IndexError, match="page"):
        ops.index_scores(noise(1, 1, 6), noise(1, 1), pool, rows)


@DTYPES
@pytest.mark.parametrize("num_heads", [1, 16, 5])
def test_index_scores_are_those_of_torch_up_to_each_length(
    num_heads: int, dtype: torch.dtype
) -> None:
    pages = Pages(LENGTHS, 13, dtype)
    rows = pages.rows()
    q, weight = noise(12, num_heads, 13), noise(12, num_heads, seed=1)
    scores = ops.index_scores(q, weight, pages.pool, rows)
    assert scores.shape == (len(LENGTHS), max(LENGTHS))
    for s, length in enumerate(LENGTHS):
        row = int(rows.row_S[s])
        key = pages.read(s, range(length))[None]
        match = (q[row].double() @ key[0].double().T).relu()
        expected = (weight[row].double() @ match / math.sqrt(13)).float()
        torch.testing.assert_close(scores[s, :length], expected, rtol=0, atol=1e-5)
        theirs = index_scores_batch(q[row][None], weight[row][None], key)[0]
        torch.testing.assert_close(scores[s, :length], theirs, rtol=0, atol=1e-5)
        assert (scores[s, length:] == -torch.inf).all()


@pytest.mark.parametrize("values", [[-87.5, -1e9, -math.inf], [math.nan]], ids=["tiny", "nan"])
def test_the_exponential_keeps_to_its_bounds(values: list[float]) -> None:
    for value in values:
        power = float(kernels.exp(np.float32(value)))
        assert math.isnan(power) if math.isnan(value) else 0 <= power < 1e-37


def test_the_exponential_is_exact_to_two_units_in_the_last_place() -> None:
    for x in np.linspace(-86, 87, 2001, dtype=np.float32):
        assert math.isclose(float(kernels.exp(x)), math.exp(float(x)), rel_tol=2.4e-7)


def test_what_has_no_folder_for_a_cache_is_compiled_all_the_same() -> None:
    # a function without a file stands in for one whose file lies where nothing can be written
    code = compile("lambda x: x + x", "<nowhere>", "eval").co_consts[0]
    assert kernels._compiled(FunctionType(code, {}))(3) == 6
