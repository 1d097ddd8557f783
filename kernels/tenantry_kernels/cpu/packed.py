"""Compiled products with matrices that stay as released files hold them: INT4 groups and FP8 blocks.

A vector of weights is widened in registers as it streams by, so that a product reads the stored
bytes and no others. INT4: one group of 32 columns is 16 bytes, whose nibbles become the lanes of a
vector in the order of the columns; in a table of 16 each is its BF16. FP8: a byte's low seven bits
choose among 128 BF16 in four registers. All these values are exact in BF16, products of BF16 are
exact in float32, and a group's or block's sum is scaled in float32: nothing is rounded but sums. With
float32 rows, weights are widened and scaled as float32, which is exact too.

Every row's result is the same bits whatever other rows there are. Widths are multiples of `STEP`.

numba's cache notices a change of this file only: `BLOCKS` names the content of those it is made of,
and a test holds them together.
"""

# what numba compiles has the types of its first call; what builds LLVM's code has its own
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenantry_kernels.fp8_matrix import FP8_BLOCK

from .blocks import (
    _BFLOATS,
    _I16,
    _I32,
    _I64,
    _VECTOR,
    AHEAD,
    LANES,
    STEP,
    _add,
    _add_paired,
    _floats,
    _has_bf16_dots,
    _length,
    _pairs,
    _prefetch,
    _rows,
    _spread,
    _stored_as,
    _sum_lanes,
    _vector_at,
    _widened,
    _zeros,
    row_address,
)
from .compiler import compiled

BLOCKS = "a48c694cab5f2ad57d65017a6aa5e7ed"
"""The first half of the SHA-256 of `blocks.py` and `compiler.py`, one after the other."""

PANEL = 16
"""Outputs that are done for all rows before the next: their weights stay in L1."""

_HALVES = ir.VectorType(_I16, STEP)
_WORDS = ir.VectorType(_I32, LANES)
_INT4_BYTES = STEP // 2

# as BF16's bits; the permutation looks at five bits of an index: the smaller table is there twice
_INT4_TABLE = torch.arange(-8, 8).bfloat16().view(torch.int16).tolist() * 2
_FP8_TABLE = (
    torch.arange(128, dtype=torch.uint8)
    .view(torch.float8_e4m3fn)
    .bfloat16()
    .view(torch.int16)
    .tolist()
)


def _constant(kind, values):
    return ir.Constant(kind, values if isinstance(values, list) else [values] * kind.count)


def _has_permutes(context):
    return "+avx512bw" in context.codegen().magic_tuple()[2].split(",")


def _int4_lanes(builder, row, group):
    """Return 32 lanes whose low nibbles are a group's, in order; above them is something else."""
    start = builder.mul(group, _I64(_INT4_BYTES))
    raw = builder.load(_vector_at(builder, row, start, _INT4_BYTES), align=1)
    word = builder.zext(raw, _WORDS)
    both = builder.or_(word, builder.shl(word, _constant(_WORDS, 12)))
    return builder.bitcast(both, _HALVES)


def _int4_pairs(builder, row, group):
    """Return a group's integers as BF16."""
    kind = ir.FunctionType(_HALVES, [_HALVES, _HALVES])
    choose = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.permvar.hi.512")
    table = _constant(_HALVES, _INT4_TABLE)
    return builder.bitcast(
        builder.call(choose, [table, _int4_lanes(builder, row, group)]), _BFLOATS
    )


def _int4_floats(builder, row, group):
    """Return a group's integers as two vectors of float32."""
    nibble = builder.and_(_int4_lanes(builder, row, group), _constant(_HALVES, 15))
    return [
        builder.sitofp(builder.sub(half, _constant(_WORDS, 8)), _VECTOR)
        for half in _as_words(builder, nibble)
    ]


def _fp8_pairs(context, builder, row, i):
    """Return 32 e4m3 bytes as the bits of BF16."""
    raw = builder.load(_vector_at(builder, row, i, STEP), align=1)
    byte = builder.zext(raw, _HALVES)
    if _has_permutes(context):
        kind = ir.FunctionType(_HALVES, [_HALVES, _HALVES, _HALVES])
        choose = cgutils.get_or_insert_function(
            builder.module, kind, "llvm.x86.avx512.vpermi2var.hi.512"
        )
        quarters = [
            _constant(_HALVES, _FP8_TABLE[first : first + STEP]) for first in range(0, 128, STEP)
        ]
        low, high = (builder.call(choose, [quarters[n], byte, quarters[n + 1]]) for n in (0, 2))
        is_high = builder.icmp_unsigned(
            "!=", builder.and_(byte, _constant(_HALVES, 64)), _constant(_HALVES, 0)
        )
        size = builder.select(is_high, high, low)
    else:
        size = _fp8_size(builder, builder.and_(byte, _constant(_HALVES, 0x7F)))
    sign = builder.and_(builder.shl(byte, _constant(_HALVES, 8)), _constant(_HALVES, 0x8000))
    return builder.or_(size, sign)


def _fp8_size(builder, size):
    """Return BF16's bits of e4m3 bytes without sign: by arithmetic, where no table can be had."""
    # an exponent of 120 more, and four bits more of the same mantissa
    bits = builder.add(builder.shl(size, _constant(_HALVES, 4)), _constant(_HALVES, 120 << 7))
    for small in range(8):
        is_it = builder.icmp_unsigned("==", size, _constant(_HALVES, small))
        bits = builder.select(is_it, _constant(_HALVES, _FP8_TABLE[small]), bits)
    is_nan = builder.icmp_unsigned("==", size, _constant(_HALVES, 0x7F))
    return builder.select(is_nan, _constant(_HALVES, 0x7FC0), bits)


def _as_words(builder, halves):
    """Return 32 lanes of 16 bits as two vectors of words."""
    return [
        builder.zext(
            builder.shuffle_vector(
                halves, halves, _constant(_WORDS, list(range(first, first + LANES)))
            ),
            _WORDS,
        )
        for first in (0, LANES)
    ]


def _as_floats(builder, halves):
    """Return the bits of 32 BF16 as two vectors of float32."""
    return [
        builder.bitcast(builder.shl(word, _constant(_WORDS, 16)), _VECTOR)
        for word in _as_words(builder, halves)
    ]


def _scaled(builder, vectors, factor):
    return [builder.fmul(vector, factor) for vector in vectors]


def _x_vectors(builder, row, i, *, is_paired):
    if is_paired:
        return _pairs(builder, row, i)
    return [_floats(builder, row, i), _floats(builder, row, builder.add(i, _I64(LANES)))]


def _store_sums(context, builder, sums, signature, args, num_outs, *, out, row, column):
    """Store the sums of lanes: out[row + r, column + o]."""
    array, kind = args[out], signature.args[out]
    lanes = _stored_as(builder, _sum_lanes(builder, sums), kind.dtype)
    rows = _rows(context, builder, kind, array, args[row], len(sums) // num_outs)
    for n in range(len(sums)):
        place = builder.add(args[column], _I64(n % num_outs))
        builder.store(
            builder.extract_element(lanes, _I32(n)), builder.gep(rows[n // num_outs], [place])
        )


def int4_dots(num_rows, num_outs):
    """Return the block out[row + r, column + o] = x[t + r] . w[at[o]], r < num_rows, o < num_outs.

    Call it with (x, t, packed, scale, at, out, row, column); packed: bytes; scale: bits.
    """

    @intrinsic
    def block(typingctx, x, t, packed, scale, at, out, row, column):
        index = types.int64
        place = types.UniTuple(index, num_outs)
        signature = types.void(x, index, packed, scale, place, out, index, index)

        def code(context, builder, signature, args):
            is_paired = x.dtype == types.uint16 and _has_bf16_dots(context)
            x_rows = _rows(context, builder, x, args[0], args[1], num_rows)
            outs = [builder.extract_value(args[4], o) for o in range(num_outs)]
            w_rows = [row_address(context, builder, packed, args[2], o) for o in outs]
            s_rows = [row_address(context, builder, scale, args[3], o) for o in outs]
            groups = builder.sdiv(_length(context, builder, x, args[0]), _I64(STEP))
            sums = _zeros(builder, num_rows * num_outs)
            none = _constant(_VECTOR, 0.0)
            with cgutils.for_range_slice(builder, _I64(0), groups, _I64(1), _I64) as (g, _):
                i = builder.mul(g, _I64(STEP))
                xs = [_x_vectors(builder, p, i, is_paired=is_paired) for p in x_rows]
                for o in range(num_outs):
                    _prefetch(builder, w_rows[o], builder.mul(g, _I64(_INT4_BYTES)), _I64(AHEAD))
                    factor = _spread(
                        builder, _widened(builder, builder.load(builder.gep(s_rows[o], [g])))
                    )
                    if is_paired:
                        w = _int4_pairs(builder, w_rows[o], g)
                        for r in range(num_rows):
                            part = _dot(builder, none, xs[r], w)
                            _add(builder, part, factor, sums[r * num_outs + o])
                    else:
                        ws = _scaled(builder, _int4_floats(builder, w_rows[o], g), factor)
                        for r in range(num_rows):
                            for half in range(2):
                                _add(builder, xs[r][half], ws[half], sums[r * num_outs + o])
            _store_sums(context, builder, sums, signature, args, num_outs, out=5, row=6, column=7)
            return context.get_dummy_value()

        return signature, code

    return block


def _dot(builder, total, a, b):
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _BFLOATS, _BFLOATS])
    dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512bf16.dpbf16ps.512")
    return builder.call(dot, [total, a, b])


def fp8_dots(num_rows, num_outs):
    """Return the block out[row + r, column + o] = x[t + r] . w[at[o]], r < num_rows, o < num_outs.

    Call it with (x, t, weight, scale, at, out, row, column); weight: bytes; scale: floats.
    """

    @intrinsic
    def block(typingctx, x, t, weight, scale, at, out, row, column):
        index = types.int64
        place = types.UniTuple(index, num_outs)
        signature = types.void(x, index, weight, scale, place, out, index, index)

        def code(context, builder, signature, args):
            is_paired = x.dtype == types.uint16 and _has_bf16_dots(context)
            x_rows = _rows(context, builder, x, args[0], args[1], num_rows)
            outs = [builder.extract_value(args[4], o) for o in range(num_outs)]
            w_rows = [row_address(context, builder, weight, args[2], o) for o in outs]
            s_rows = [
                row_address(context, builder, scale, args[3], builder.sdiv(o, _I64(FP8_BLOCK)))
                for o in outs
            ]
            width = _length(context, builder, x, args[0])
            sums = _zeros(builder, num_rows * num_outs)
            parts = _zeros(builder, num_rows * num_outs)
            with cgutils.for_range_slice(builder, _I64(0), width, _I64(FP8_BLOCK), _I64) as (
                first,
                b,
            ):
                for part in parts:
                    builder.store(_constant(_VECTOR, 0.0), part)
                end = builder.add(first, _I64(FP8_BLOCK))
                last = builder.select(builder.icmp_signed("<", end, width), end, width)
                with cgutils.for_range_slice(builder, first, last, _I64(STEP), _I64) as (i, _):
                    xs = [_x_vectors(builder, p, i, is_paired=is_paired) for p in x_rows]
                    for o in range(num_outs):
                        _prefetch(builder, w_rows[o], i, _I64(AHEAD))
                        bits = _fp8_pairs(context, builder, w_rows[o], i)
                        mine = [parts[r * num_outs + o] for r in range(num_rows)]
                        if is_paired:
                            w = builder.bitcast(bits, _BFLOATS)
                            for r in range(num_rows):
                                _add_paired(builder, xs[r], w, mine[r])
                        else:
                            ws = _as_floats(builder, bits)
                            for r in range(num_rows):
                                for half in range(2):
                                    _add(builder, xs[r][half], ws[half], mine[r])
                for n, part in enumerate(parts):
                    factor = _spread(builder, builder.load(builder.gep(s_rows[n % num_outs], [b])))
                    _add(builder, builder.load(part), factor, sums[n])
            _store_sums(context, builder, sums, signature, args, num_outs, out=5, row=6, column=7)
            return context.get_dummy_value()

        return signature, code

    return block


@intrinsic
def _widen_int4(typingctx, packed, scale, row, out, at):
    """out[at] = row `row` of an INT4 matrix."""
    index = types.int64
    signature = types.void(packed, scale, index, out, index)

    def code(context, builder, signature, args):
        w_row = row_address(context, builder, packed, args[0], args[2])
        s_row = row_address(context, builder, scale, args[1], args[2])
        o_row = row_address(context, builder, out, args[3], args[4])
        groups = builder.sdiv(_length(context, builder, out, args[3]), _I64(STEP))
        with cgutils.for_range_slice(builder, _I64(0), groups, _I64(1), _I64) as (g, _):
            factor = _spread(builder, _widened(builder, builder.load(builder.gep(s_row, [g]))))
            vectors = _scaled(builder, _int4_floats(builder, w_row, g), factor)
            _store_vectors(builder, vectors, o_row, builder.mul(g, _I64(STEP)), out.dtype)
        return context.get_dummy_value()

    return signature, code


@intrinsic
def _widen_fp8(typingctx, weight, scale, row, out, at):
    """out[at] = row `row` of a matrix of FP8 blocks."""
    index = types.int64
    signature = types.void(weight, scale, index, out, index)

    def code(context, builder, signature, args):
        block = _I64(FP8_BLOCK)
        w_row = row_address(context, builder, weight, args[0], args[2])
        s_row = row_address(context, builder, scale, args[1], builder.sdiv(args[2], block))
        o_row = row_address(context, builder, out, args[3], args[4])
        width = _length(context, builder, out, args[3])
        with cgutils.for_range_slice(builder, _I64(0), width, _I64(STEP), _I64) as (i, _):
            factor = _spread(builder, builder.load(builder.gep(s_row, [builder.sdiv(i, block)])))
            bits = _fp8_pairs(context, builder, w_row, i)
            _store_vectors(
                builder, _scaled(builder, _as_floats(builder, bits), factor), o_row, i, out.dtype
            )
        return context.get_dummy_value()

    return signature, code


def _store_vectors(builder, vectors, row, i, dtype):
    for n, vector in enumerate(vectors):
        place = builder.add(i, _I64(n * LANES))
        stored = _stored_as(builder, vector, dtype)
        builder.store(stored, _vector_at(builder, row, place, LANES), align=2)


_int4_four, _int4_two, _int4_one = int4_dots(4, 4), int4_dots(2, 4), int4_dots(1, 4)
_fp8_four, _fp8_two, _fp8_one = fp8_dots(4, 2), fp8_dots(2, 2), fp8_dots(1, 4)


@compiled
def int4_product(x, packed, scale, out, column):
    """out[t, column + o] = x[t] . w[o]. x: floats or bits [T, I]; packed: bytes [O, I / 2]; scale: bits [O, I / 32].

    O is 4 or more.
    """
    num_rows, num_out = x.shape[0], packed.shape[0]
    rows = 4 if num_rows >= 4 else 2 if num_rows > 1 else 1
    for first in range(0, num_out, PANEL):
        for begin in range(0, num_rows, rows):
            # the last block begins inside the one before and writes the same there
            t = min(begin, num_rows - rows)
            for start in range(first, min(first + PANEL, num_out), 4):
                o = min(start, num_out - 4)
                at = (o, o + 1, o + 2, o + 3)
                if rows == 4:
                    _int4_four(x, t, packed, scale, at, out, t, column + o)
                elif rows == 2:
                    _int4_two(x, t, packed, scale, at, out, t, column + o)
                else:
                    _int4_one(x, t, packed, scale, at, out, t, column + o)


@compiled
def fp8_product(x, weight, scale, out, column):
    """out[t, column + o] = x[t] . w[o]. x: floats or bits [T, I]; weight: bytes [O, I]; scale: floats, per block.

    O is 4 or more.
    """
    num_rows, num_out = x.shape[0], weight.shape[0]
    rows = 4 if num_rows >= 4 else 2 if num_rows > 1 else 1
    for first in range(0, num_out, PANEL):
        for begin in range(0, num_rows, rows):
            # the last block begins inside the one before and writes the same there
            t = min(begin, num_rows - rows)
            for start in range(first, min(first + PANEL, num_out), 4):
                o = min(start, num_out - 4)
                if rows == 1:
                    at = (o, o + 1, o + 2, o + 3)
                    _fp8_one(x, t, weight, scale, at, out, t, column + o)
                else:
                    for p in range(o, o + 4, 2):
                        if rows == 4:
                            _fp8_four(x, t, weight, scale, (p, p + 1), out, t, column + p)
                        else:
                            _fp8_two(x, t, weight, scale, (p, p + 1), out, t, column + p)


@compiled
def widen_int4(packed, scale, first, out):
    """out[n] = row first + n of an INT4 matrix. out: floats or bits [N, I]."""
    for n in range(out.shape[0]):
        _widen_int4(packed, scale, first + n, out, n)


@compiled
def widen_fp8(weight, scale, first, out):
    """out[n] = row first + n of a matrix of FP8 blocks. out: floats or bits [N, I]."""
    for n in range(out.shape[0]):
        _widen_fp8(weight, scale, first + n, out, n)
