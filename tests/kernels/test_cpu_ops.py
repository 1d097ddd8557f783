"""Compiled ops against torch's forms and against sums written out in float64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from tenantry_kernels.cpu import blocks, compiler, kernels, ops
from tenantry_kernels.experts import route_to_experts, swiglu
from tenantry_kernels.paged_mla import (
    decode_attention,
    fused_attention,
    gather_rows,
    prefill_attention,
    slots_of,
    tiled_attention,
)
from tenantry_kernels.sparse_index import index_scores_batch

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
Chunk: TypeAlias = Callable[..., torch.Tensor]
CHUNKS = pytest.mark.parametrize(
    ("attend", "dtype"),
    [
        pytest.param(ops.chunk_attention, torch.float32, id="compiled-f32"),
        pytest.param(ops.chunk_attention, torch.bfloat16, id="compiled-bf16"),
        pytest.param(fused_attention, torch.float32, id="fused-f32"),
        pytest.param(fused_attention, torch.bfloat16, id="fused-bf16"),
        pytest.param(tiled_attention, torch.float32, id="tiled-f32"),
    ],
)
# one row, fewer than a block, a block, one row more, blocks and a rest
ROWS = pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 23])
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
# of no width for blocks, of one but with too few outputs for them, of whole blocks and of a rest
@pytest.mark.parametrize(("width", "outputs"), [(1, 1), (33, 16), (32, 3), (64, 4), (96, 37)])
def test_a_product_is_that_of_float64(
    num_rows: int, width: int, outputs: int, dtype: torch.dtype
) -> None:
    x, weight = noise(num_rows, width).to(dtype), noise(outputs, width, seed=1).to(dtype)
    expected = (x.double() @ weight.double().T).to(dtype)
    torch.testing.assert_close(ops.linear(x, weight), expected, **tolerance(dtype))


@DTYPES
@pytest.mark.parametrize("width", [33, 96])
def test_a_products_row_is_the_same_whatever_rows_are_with_it(
    width: int, dtype: torch.dtype
) -> None:
    x, weight = noise(9, width).to(dtype), noise(21, width, seed=1).to(dtype)
    whole = ops.linear(x, weight)
    for last in range(1, 9):
        assert torch.equal(ops.linear(x[:last], weight), whole[:last])


@DTYPES
@ROWS
@pytest.mark.parametrize(("key_dim", "latent"), [(5, 33), (32, 64), (7, 128)])
def test_head_maps_are_those_of_float64(
    num_rows: int, key_dim: int, latent: int, dtype: torch.dtype
) -> None:
    weight = noise(3, key_dim + 6, latent).to(dtype)
    # with gaps between its heads, as a part of wider queries
    query = noise(num_rows, 3, key_dim + 2, seed=1).to(dtype)[..., :key_dim]
    absorbed = torch.einsum("tnd,ndl->tnl", query.double(), weight[:, :key_dim].double()).to(dtype)
    torch.testing.assert_close(ops.absorb_heads(query, weight), absorbed, **tolerance(dtype))
    sums = noise(num_rows, 3, latent, seed=2).to(dtype)
    values = torch.einsum("tnl,nvl->tnv", sums.double(), weight[:, key_dim:].double()).to(dtype)
    expanded = ops.expand_heads(sums, weight, key_dim)
    torch.testing.assert_close(expanded, values, rtol=tolerance(dtype)["rtol"], atol=2**-7)


def test_a_product_shows_what_is_not_a_number_in_its_row_alone() -> None:
    x, weight = noise(6, 64).bfloat16(), noise(8, 64, seed=1).bfloat16()
    x[2, 63], x[4, 0] = torch.nan, torch.inf
    product = ops.linear(x, weight)
    assert product[2].isnan().all() and product[4].isinf().all()
    assert product[[0, 1, 3, 5]].isfinite().all()


def test_float32_is_rounded_to_bf16_as_torch_does() -> None:
    # ties, the greatest, beyond it, the smallest, and not-a-number with all its bits
    words = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 1, 0x7FFFFFFF, 0xFFFFFFFF]
    values = np.array([words], np.uint32).view(np.float32)
    rounded = np.empty(values.shape, np.uint16)
    kernels.copy_rows(values, rounded)
    expected = torch.from_numpy(values).bfloat16()
    result = torch.from_numpy(rounded).view(torch.bfloat16)
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


@DTYPES
@ROWS
@pytest.mark.parametrize(("hidden", "inner"), [(20, 11), (32, 64)])
def test_experts_are_those_of_torch(
    num_rows: int, hidden: int, inner: int, dtype: torch.dtype
) -> None:
    x, weight = noise(num_rows, hidden).to(dtype), noise(num_rows, 3, seed=1)
    gate_up = noise(6, 2 * inner, hidden, seed=2).mul_(0.5).to(dtype)
    down = noise(6, hidden, inner, seed=3).mul_(0.5).to(dtype)
    # the last expert is nobody's
    chosen = noise(num_rows, 5, seed=4).topk(3, -1).indices
    expected = route_to_experts(
        x.float(),
        chosen,
        weight,
        6,
        # between the two products values are rounded, as torch's are
        lambda e, rows: linear(
            swiglu(linear(rows, gate_up[e].float())).to(dtype).float(), down[e].float()
        ),
    )
    routed = ops.routed_experts(x, chosen, weight, gate_up, down)
    # a value between the products may be rounded the other way
    atol = 1e-3 if dtype == torch.float32 else 2**-5
    torch.testing.assert_close(routed.float(), expected, rtol=tolerance(dtype)["rtol"], atol=atol)
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


@ROWS
@pytest.mark.parametrize(("num_groups", "num_kept"), [(4, 1), (4, 3), (6, 2), (4, 4)])
def test_a_router_keeps_to_the_groups_whose_two_best_sum_highest(
    num_rows: int, num_groups: int, num_kept: int
) -> None:
    x, weight, bias = noise(num_rows, 32).bfloat16(), noise(24, 32, seed=1), noise(24, seed=2)
    experts, weights = ops.route(
        x,
        weight,
        bias,
        4,
        num_groups=num_groups,
        num_groups_kept=num_kept,
        is_normalized=False,
        scaling=2.0,
    )
    score = (x.double() @ weight.double().T).sigmoid()
    for t in range(num_rows):
        groups = (score[t] + bias).view(num_groups, -1)
        ranking = groups.sort(-1).values[:, -2:].sum(-1).argsort(descending=True)
        allowed = torch.zeros_like(groups, dtype=torch.bool)
        allowed[ranking[:num_kept]] = True
        best = groups.flatten().where(allowed.flatten(), torch.tensor(-torch.inf)).topk(4).indices
        assert torch.equal(experts[t], best)
        torch.testing.assert_close(weights[t], 2 * score[t, best].float())


def test_a_router_with_fewer_experts_in_its_groups_than_choices_takes_others_last() -> None:
    x, weight, bias = noise(3, 32), noise(6, 32, seed=1), torch.tensor([0.0, 0, 9, 9, 0, 0])
    experts, _ = ops.route(
        x, weight, bias, 3, num_groups=3, num_groups_kept=1, is_normalized=True, scaling=1.0
    )
    for row in experts.tolist():
        assert set(row[:2]) == {2, 3} and row[2] in {0, 1, 4, 5}


def test_a_router_gives_a_row_that_is_not_a_number_different_experts_and_no_weight() -> None:
    x = torch.full((1, 4), torch.nan)
    experts, weights = ops.route(x, noise(5, 4), torch.zeros(5), 3, is_normalized=True, scaling=1.0)
    assert len(set(experts[0].tolist())) == 3 and set(experts[0].tolist()) <= set(range(5))
    assert weights.isnan().all()


@DTYPES
@pytest.mark.parametrize("num_heads", [1, 4, 5, 8, 9])
@pytest.mark.parametrize(("width", "latent"), [(21, 15), (96, 64)])
def test_attention_reads_each_sequences_own_pages_to_its_own_length(
    num_heads: int, width: int, latent: int, dtype: torch.dtype
) -> None:
    pages = Pages(LENGTHS, width, dtype)
    rows = pages.rows()
    q = noise(2 * len(LENGTHS), num_heads, width)
    sums = torch.full((2 * len(LENGTHS), num_heads, latent), 7.0)
    ops.decode_attention(q, pages.pool, rows, None, 0.2, sums)
    for s, length in enumerate(LENGTHS):
        row = int(rows.row_S[s])
        expected = latent_sums(q[row], pages.read(s, range(length)), 0.2, latent).float()
        torch.testing.assert_close(sums[row], expected, rtol=0, atol=1e-5)
        if length:
            kv = pages.read(s, range(length))[None]
            theirs = decode_attention(q[row][None], kv, torch.zeros(1, length), 0.2, latent)
            torch.testing.assert_close(sums[row], theirs[0], rtol=0, atol=1e-5)
        else:
            assert not sums[row].any()
        assert (sums[row - 1] == 7.0).all()


def test_attention_with_queries_in_bf16_sums_as_exactly() -> None:
    pages, q = Pages(LENGTHS, 96, torch.bfloat16), noise(12, 5, 96).bfloat16()
    rows, sums = pages.rows(), torch.empty(12, 5, 64)
    ops.decode_attention(q, pages.pool, rows, None, 0.2, sums)
    for s, length in enumerate(LENGTHS):
        row = int(rows.row_S[s])
        expected = latent_sums(q[row], pages.read(s, range(length)), 0.2, 64).float()
        torch.testing.assert_close(sums[row], expected, rtol=0, atol=1e-5)


# one row, both sides of a tile's edge, several tiles
@pytest.mark.parametrize("num_rows", [1, 15, 16, 17, 40, 64, 65, 130])
@pytest.mark.parametrize("num_before", [0, 3, 64])
@pytest.mark.parametrize(("width", "values"), [(21, 15), (96, 64)])
@pytest.mark.parametrize("is_shared", [True, False])
@CHUNKS
def test_a_chunks_rows_see_what_is_before_them_and_themselves(
    attend: Chunk,
    num_rows: int,
    num_before: int,
    width: int,
    values: int,
    is_shared: bool,
    dtype: torch.dtype,
) -> None:
    num_keys = num_before + num_rows
    q = noise(num_rows, 5, width).to(dtype)
    key = noise(1 if is_shared else 5, num_keys, width, seed=1).to(dtype)
    value = key if is_shared else noise(5, num_keys, values, seed=2).to(dtype)
    sums = attend(q, key, value, None, 0.2, values)
    score = 0.2 * q.double().transpose(0, 1) @ key.double().mT
    seen = torch.ones(num_rows, num_keys).tril(num_before).bool()
    weight = score.masked_fill(~seen, -torch.inf).softmax(-1)
    expected = (weight @ value[..., :values].double()).transpose(0, 1).to(dtype)
    torch.testing.assert_close(sums, expected, **tolerance(dtype))
    if is_shared:
        bias = torch.zeros(num_rows, num_keys).masked_fill_(~seen, -torch.inf)
        theirs = prefill_attention(q, key[0].float(), bias, 0.2, values).to(dtype)
        torch.testing.assert_close(sums, theirs, **tolerance(dtype))


@CHUNKS
def test_a_chunks_rows_see_the_chosen_positions_only(attend: Chunk, dtype: torch.dtype) -> None:
    q, kv = noise(20, 2, 32).to(dtype), noise(1, 30, 32, seed=1).to(dtype)
    # every row sees itself and every third before it
    position = torch.arange(30)
    chosen = (position % 3 == 0) | (position == position[10:, None])
    bias = torch.zeros(20, 30).masked_fill_(~chosen, -torch.inf)
    sums = attend(q, kv, kv, bias, 0.3, 32)
    for t in range(20):
        mine = kv[0, : 11 + t][chosen[t, : 11 + t]]
        expected = latent_sums(q[t], mine, 0.3, 32).to(dtype)
        torch.testing.assert_close(sums[t], expected, **tolerance(dtype))


@pytest.mark.parametrize(("width", "value_dim"), [(96, 64), (32, 32), (12, 9)])
@DTYPES
def test_rows_that_see_little_take_that_alone(
    dtype: torch.dtype, width: int, value_dim: int
) -> None:
    num_rows, num_tokens = 20, 70
    q, kv = noise(num_rows, 5, width).to(dtype), noise(num_tokens, width, seed=1).to(dtype)
    position = torch.full((num_rows, 9), -1)
    chosen = [list(range(t % 8, num_tokens - num_rows + 1 + t, 10)) for t in range(num_rows)]
    for t, mine in enumerate(chosen):
        # nothing stands at the front, and what comes after the row's own token is nothing as well
        position[t, 1 : 1 + len(mine)] = torch.tensor(mine)
        if t < num_rows - 1:
            position[t, 8] = num_tokens - num_rows + 1 + t
    sums = ops.chosen_attention(q, kv, position, 0.3, value_dim)
    for t, mine in enumerate(chosen):
        expected = latent_sums(q[t], kv[mine], 0.3, value_dim).to(dtype)
        torch.testing.assert_close(sums[t], expected, **tolerance(dtype))


def test_what_is_not_to_be_seen_weighs_nothing_at_all() -> None:
    # a weight that is no normal number makes products slow, and large values seen
    q, kv = noise(40, 2, 64), noise(1, 40, 64, seed=1)
    only_the_first = torch.full((40, 40), -torch.inf)
    only_the_first[:, 0] = 0
    value = torch.cat((kv[:, :1], kv[:, 1:].sign() * 1e37), 1)
    sums = ops.chunk_attention(q, kv, value, only_the_first, 0.2, 64)
    assert torch.equal(sums, kv[0, 0].expand(40, 2, -1))


def test_a_chunks_poison_reaches_the_rows_that_see_it() -> None:
    q, kv = noise(40, 2, 64), noise(1, 40, 64, seed=1)
    clean = ops.chunk_attention(q, kv, kv, None, 0.2, 64)
    kv[0, 20] = torch.nan
    spoiled = ops.chunk_attention(q, kv, kv, None, 0.2, 64)
    assert spoiled[20:].isnan().all()
    # those of its own tile may be spoiled with it
    assert torch.equal(spoiled[:16], clean[:16])


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
@pytest.mark.parametrize("width", [13, 32])
def test_index_scores_are_those_of_torch_up_to_each_length(
    num_heads: int, width: int, dtype: torch.dtype
) -> None:
    pages = Pages(LENGTHS, width, dtype)
    rows = pages.rows()
    q, weight = noise(12, num_heads, width), noise(12, num_heads, seed=1)
    scores = ops.index_scores(q, weight, pages.pool, rows)
    assert scores.shape == (len(LENGTHS), max(LENGTHS))
    for s, length in enumerate(LENGTHS):
        row = int(rows.row_S[s])
        key = pages.read(s, range(length))[None]
        match = (q[row].double() @ key[0].double().T).relu()
        expected = (weight[row].double() @ match / math.sqrt(width)).float()
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


def test_the_kernels_file_names_the_content_of_the_blocks_it_is_made_of() -> None:
    # numba's cache of a kernel looks at the kernels' own file: change this name with the blocks
    sources = (Path(str(module.__file__)) for module in (blocks, compiler))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    assert kernels.BLOCKS == digest[: len(digest) // 2]


def test_what_has_no_folder_for_a_cache_is_compiled_all_the_same() -> None:
    # a function without a file stands in for one whose file lies where nothing can be written
    code = compile("lambda x: x + x", "<nowhere>", "eval").co_consts[0]
    assert compiler.compiled(FunctionType(code, {}))(3) == 6
