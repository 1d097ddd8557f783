"""Compiled ops over FP8 pages against their torch forms, and against sums written out in float64."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tenantry_kernels import fp8_rows, paged_mla
from tenantry_kernels.cpu import blocks, fp8_ops, fp8_pages, index_choice, kernels
from tenantry_kernels.cpu.ops import DecodeRows

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
# the nano models' index keys and latents, whole vectors, and less than one
WIDTHS = pytest.mark.parametrize("width", [48, 96, 64, 10])
# nothing, one token, both sides of a page's edge, several pages
LENGTHS = (0, 1, 63, 64, 65, 129)
NOWHERE = torch.iinfo(torch.int64).max
SCALE = 0.3


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def hard_rows(width: int) -> torch.Tensor:
    """Return rows of all magnitudes, and of those where rounding and scales have their edges."""
    rows = noise(60, width) * 2.0 ** torch.arange(-140, 100, 4)[:, None]
    rows[0] = 0.0
    rows[1, 3] = math.nan
    rows[2, 4] = -math.inf
    rows[3, :2] = torch.tensor([448.0, 448.0 * (1 + 2**-23)])
    # values that e4m3 has no leading one for, and ties between them
    rows[4] = torch.arange(width) * 2.0**-10
    rows[4, -1] = 448.0
    return rows


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.view(torch.int32), right.view(torch.int32))


class Pages:
    """Sequences in an FP8 pool whose other slots are all poison, with pages in no order."""

    def __init__(self, width: int) -> None:
        columns = -(-max(LENGTHS) // 64)
        count = len(LENGTHS) * columns
        order = torch.randperm(count, generator=torch.Generator().manual_seed(5))
        self.page_table = 1 + order.view(len(LENGTHS), columns)
        self.pool = torch.full((count + 2, fp8_rows.page_bytes(width)), 0xFF, dtype=torch.uint8)
        self.rows_S = [noise(n, width, seed=20 + s) for s, n in enumerate(LENGTHS)]
        self.rows_S[3] *= 8
        for s, rows in enumerate(self.rows_S):
            fp8_rows.append_rows(self.pool, self.slots(s), rows)

    def slots(self, sequence: int) -> torch.Tensor:
        return paged_mla.slots_of(self.page_table[sequence], torch.arange(LENGTHS[sequence]), 64)

    def kept(self, sequence: int) -> torch.Tensor:
        """Return what a sequence's rows are after they were quantised, in float64."""
        rows = self.rows_S[sequence]
        if not len(rows):
            return rows.double()
        value, scale = fp8_rows.quantise_rows(rows)
        return value.double() * scale.double()[:, None]

    def decode_rows(self) -> DecodeRows:
        """Return the sequences' rows in reverse, each after a row that is nobody's."""
        return DecodeRows(
            row_S=np.arange(len(LENGTHS))[::-1] * 2 + 1,
            page_table_SP=self.page_table.numpy(),
            read_len_S=np.array(LENGTHS),
        )


@DTYPES
@WIDTHS
@torch.inference_mode()
def test_rows_are_written_as_by_torch_to_the_bit(width: int, dtype: torch.dtype) -> None:
    rows = hard_rows(width).to(dtype)
    slots = torch.randperm(4 * 64, generator=torch.Generator().manual_seed(1))[: len(rows)]
    slots[7] = NOWHERE
    theirs = torch.zeros(5, fp8_rows.page_bytes(width), dtype=torch.uint8)
    ours = theirs.clone()
    fp8_rows.append_rows(theirs, slots, rows)
    fp8_ops.append_rows(ours, slots, rows)
    assert torch.equal(ours, theirs)


@WIDTHS
@torch.inference_mode()
def test_rows_are_read_as_by_torch_to_the_bit(width: int) -> None:
    pool = torch.zeros(2, fp8_rows.page_bytes(width), dtype=torch.uint8)
    rows = hard_rows(width)
    fp8_rows.append_rows(pool, torch.arange(len(rows)), rows)
    slots = torch.tensor([[0, 59, 3], [1, 64, 4]])
    theirs, ours = fp8_rows.gather_rows(pool, slots), fp8_ops.gather_rows(pool, slots)
    assert torch.equal(theirs.isnan(), ours.isnan())
    assert same_bits(theirs.nan_to_num(), ours.nan_to_num())
    assert fp8_ops.gather_rows(pool, slots[0, :0]).shape == (0, width)


@torch.inference_mode()
def test_every_byte_is_widened_to_its_value() -> None:
    pool = torch.zeros(2, fp8_rows.page_bytes(256), dtype=torch.uint8)
    pool[0, :256] = torch.arange(256, dtype=torch.uint8)
    fp8_rows.page_scales(pool)[0, 0] = 0.5
    (row,) = fp8_ops.gather_rows(pool, torch.tensor([0]))
    for byte, value in enumerate(row.tolist()):
        sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
        fraction = mantissa / 8 + (exponent > 0)
        expected = (-1) ** sign * fraction * 2.0 ** (max(exponent, 1) - 7) * 0.5
        assert math.isnan(value) if byte & 0x7F == 0x7F else value == expected


@DTYPES
@pytest.mark.parametrize(("heads", "latent", "rope"), [(4, 64, 32), (9, 40, 8), (3, 7, 3)])
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
@torch.inference_mode()
def test_decode_attends_over_what_was_kept(
    dtype: torch.dtype, heads: int, latent: int, rope: int, is_sparse: bool
) -> None:
    pages = Pages(latent + rope)
    rows = pages.decode_rows()
    num_rows = 2 * len(LENGTHS)
    q = noise(num_rows, heads, latent + rope).to(dtype)
    chosen = None
    if is_sparse:
        chosen = torch.randint(-1, 129, (num_rows, 20), generator=torch.Generator().manual_seed(2))
    out = torch.full((num_rows, heads, latent), 7.0, dtype=dtype)
    fp8_ops.decode_attention(q, pages.pool, rows, chosen, SCALE, out)
    for s, row in enumerate(rows.row_S.tolist()):
        keys = pages.kept(s)
        if chosen is not None:
            keys = keys[[k for k in chosen[row].tolist() if 0 <= k < len(keys)]]
        expected = torch.zeros(heads, latent, dtype=torch.float64)
        if len(keys):
            weight = torch.softmax(q[row].double() @ keys.T * SCALE, -1)
            expected = weight @ keys[:, :latent]
        rtol = 1e-5 if dtype == torch.float32 else 2**-7
        torch.testing.assert_close(out[row].double(), expected, rtol=rtol, atol=rtol * 4)
    assert (out[::2] == 7.0).all()


@DTYPES
@pytest.mark.parametrize(("heads", "width"), [(16, 48), (9, 64), (3, 10)])
@torch.inference_mode()
def test_index_scores_are_of_what_was_kept(dtype: torch.dtype, heads: int, width: int) -> None:
    pages = Pages(width)
    rows = pages.decode_rows()
    q = noise(2 * len(LENGTHS), heads, width).to(dtype)
    weight = noise(2 * len(LENGTHS), heads, seed=1).to(dtype)
    score = fp8_ops.index_scores(q, weight, pages.pool, rows)
    for s, row in enumerate(rows.row_S.tolist()):
        match = torch.relu(q[row].double() @ pages.kept(s).T)
        expected = (weight[row].double()[:, None] * match).sum(0) * width**-0.5
        torch.testing.assert_close(score[s, : LENGTHS[s]].double(), expected, rtol=1e-5, atol=2e-4)
        assert (score[s, LENGTHS[s] :] == -torch.inf).all()


@torch.inference_mode()
def test_the_error_against_bf16_pages_is_that_of_the_values() -> None:
    # keys as a norm leaves them; e4m3 rounds by at most a sixteenth, and on average by a fortieth
    keys, q = noise(2, 64, 96), noise(1, 4, 96, seed=1)
    pool = fp8_rows.pack_pages(keys)
    rows = DecodeRows(row_S=np.array([0]), page_table_SP=np.array([[0]]), read_len_S=np.array([64]))
    out = torch.zeros(1, 4, 64)
    fp8_ops.decode_attention(q, pool, rows, None, 0.1, out)
    bf16 = keys[0].bfloat16().double()
    expected = torch.softmax(q[0].double() @ bf16.T * 0.1, -1) @ bf16[:, :64]
    error = (out[0] - expected).norm() / expected.norm()
    assert 0.005 < error < 0.06


@torch.inference_mode()
def test_what_is_not_a_number_stays_so_in_its_own_sequence() -> None:
    pages = Pages(96)
    fp8_rows.append_rows(pages.pool, pages.slots(2)[5:6], torch.full((1, 96), math.nan))
    rows = pages.decode_rows()
    out = torch.zeros(2 * len(LENGTHS), 4, 64)
    fp8_ops.decode_attention(noise(len(out), 4, 96), pages.pool, rows, None, SCALE, out)
    is_nan = out.isnan().all(-1).all(-1)
    assert is_nan.nonzero().flatten().tolist() == [rows.row_S[2]] and not out[~is_nan].isnan().any()


@torch.inference_mode()
def test_pages_outside_the_pool_are_refused() -> None:
    pool = torch.zeros(3, fp8_rows.page_bytes(96), dtype=torch.uint8)
    rows = DecodeRows(
        row_S=np.array([0]), page_table_SP=np.array([[1, 3]]), read_len_S=np.array([65])
    )
    with pytest.raises(IndexError):
        fp8_ops.decode_attention(noise(1, 4, 96), pool, rows, None, 1.0, torch.zeros(1, 4, 64))
    with pytest.raises(IndexError):
        fp8_ops.index_scores(noise(1, 4, 96), noise(1, 4), pool, rows)
    with pytest.raises(IndexError):
        fp8_ops.gather_rows(pool, torch.tensor([3 * 64]))


def test_compiled_code_is_of_the_files_it_is_made_of() -> None:
    # numba's cache looks at this module's own file: change the name with the others
    sources = (Path(str(module.__file__)) for module in (blocks, kernels, index_choice))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    assert fp8_pages.KERNELS == digest[: len(digest) // 2]
