"""Compiled loops over FP8 pages (`fp8_rows`): rows quantised into them, read from them, attended to.

An e4m3 value is a BF16 value too, so a sequence's rows are widened into a block of BF16 once and then
go through the loops for BF16 pages. Scales stay apart: a key's scale is a factor of its score and of
its weight. Widening takes about a twentieth of a nanosecond per value, a fifth of what a table of 256
values takes.

numba's cache notices a change of this file only: `KERNELS` names the content of those it is made of,
and a test holds them together.
"""

# what numba compiles has the types of its first call; what builds LLVM's code has its own
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tenantry_kernels.fp8_rows import PAGE_TOKENS, SCALE_BYTES

from .blocks import STEP, float_of, widen
from .compiler import compiled, in_order
from .index_choice import add_scores
from .kernels import HEADS, KEYS, ROWS, ZERO, copy_rows, match_keys, own_slots, softmax, weigh_rows

KERNELS = "c92a3def5bcd911ba7f6155aa783578c"
"""The first half of the SHA-256 of `blocks.py`, `kernels.py` and `index_choice.py`, one after the other."""

FLOATS_PER_VALUE = PAGE_TOKENS // SCALE_BYTES
"""Float32 words that a page's rows take for each of a row's values: its scales come after them."""
MAX_E4M3 = np.float32(448)
MIN_NORMAL = np.float32(2**-6)
LAST_BIT = np.float32(2**14)
"""Added to a value below `MIN_NORMAL` it leaves multiples of 2**-9: that is float32's last bit there."""

_BYTES, _HALVES = ir.VectorType(ir.IntType(8), STEP), ir.VectorType(ir.IntType(16), STEP)


@intrinsic
def _widen_lanes(typingctx, byte, start, out, at, count):
    """out[at + n] = the bits of e4m3 byte[start + n] as BF16 for n < STEP, 0 from n = `count` on.

    byte, out: one axis; `byte` must have STEP values from `start` on.
    """
    signature = types.void(byte, types.int64, out, types.int64, types.int64)

    def code(context, builder, signature, args):
        first, last = (
            builder.gep(context.make_array(kind)(context, builder, array).data, [index])
            for kind, array, index in (
                (signature.args[0], args[0], args[1]),
                (signature.args[2], args[2], args[3]),
            )
        )
        raw = builder.load(builder.bitcast(first, _BYTES.as_pointer()), align=1)
        wide = _bf16_of(builder, builder.zext(raw, _HALVES))
        number = builder.insert_element(
            ir.Constant(_HALVES, ir.Undefined),
            builder.trunc(args[4], ir.IntType(16)),
            ir.Constant(ir.IntType(32), 0),
        )
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), STEP), [0] * STEP)
        is_own = builder.icmp_signed(
            "<",
            ir.Constant(_HALVES, list(range(STEP))),
            builder.shuffle_vector(number, number, lanes),
        )
        own = builder.select(is_own, wide, _same(0))
        builder.store(own, builder.bitcast(last, _HALVES.as_pointer()), align=2)
        return context.get_dummy_value()

    return signature, code


def _bf16_of(builder, byte):
    """Return BF16's bits of e4m3 bytes in lanes of 16 bits."""
    size = builder.and_(byte, _same(0x7F))
    # an exponent of 120 more, and four bits more of the same mantissa
    bits = builder.add(builder.shl(size, _same(4)), _same(120 << 7))
    # below 8 there is no leading one: multiples of 2**-9, whose exponent is that of their first bit
    for first, shift in ((4, 5), (2, 6), (1, 7)):
        exponent = 127 - 9 + first.bit_length() - 1
        part = builder.shl(builder.sub(size, _same(first)), _same(shift))
        small = builder.add(part, _same(exponent << 7))
        bits = builder.select(builder.icmp_unsigned("<", size, _same(2 * first)), small, bits)
    bits = builder.select(builder.icmp_unsigned("==", size, _same(0)), _same(0), bits)
    bits = builder.select(builder.icmp_unsigned("==", size, _same(0x7F)), _same(0x7FC0), bits)
    return builder.or_(bits, builder.shl(builder.and_(byte, _same(0x80)), _same(8)))


def _same(number):
    return ir.Constant(_HALVES, [number] * STEP)


@in_order
def bits_of(value):
    """Return a float32's bits, int32."""
    return np.float32(value).view(np.int32)


@in_order
def scale_bits(largest):
    """Return the bits of 2**ceil(log2(x / 448)) of the bits of x; those of 1 for 0 (`fp8_rows`)."""
    if largest == 0:
        return np.int32(127 << 23)
    carry = 1 if (largest & 0x7FFFFF) > 0x600000 else 0
    return np.int32(max((largest >> 23) - 8 + carry, 1) << 23)


@in_order
def e4m3_of(value):
    """Return the byte nearest to a float32 of magnitude up to 448, ties to even; NaN for NaN."""
    bits = bits_of(value)
    size = float_of(np.int32(bits & 0x7FFFFFFF))
    # comparisons that send NaN to the bound
    size = size if size < MAX_E4M3 else MAX_E4M3
    word = bits_of(size)
    normal = ((word + 0x7FFFF + ((word >> 20) & 1)) >> 20) - (120 << 3)
    small = bits_of(size + LAST_BIT) - bits_of(LAST_BIT)
    byte = small if size < MIN_NORMAL else normal
    byte = byte if value == value else 0x7F
    return np.uint8(byte | ((bits >> 24) & 0x80))


@in_order
def write_rows(row, slot, pool):
    """Quantise each row into its slot; slots past the pool go to the first of the last page.

    row: floats or bits [T, W]; slot: [T]; pool: bytes [pages + 1, B].
    """
    width = row.shape[1]
    scale = pool.view(np.float32)
    own = np.empty(width, np.float32)
    sink = (pool.shape[0] - 1) * PAGE_TOKENS
    for t in range(row.shape[0]):
        at = slot[t] if 0 <= slot[t] < sink else sink
        page, token = at // PAGE_TOKENS, at % PAGE_TOKENS
        largest = np.int32(0)
        for i in range(width):
            own[i] = widen(row[t, i])
            largest = max(largest, np.int32(bits_of(own[i]) & 0x7FFFFFFF))
        scaled = scale_bits(largest)
        factor = float_of(np.int32((254 << 23) - scaled))
        out = pool[page, token * width : (token + 1) * width]
        for i in range(width):
            out[i] = e4m3_of(own[i] * factor)
        scale[page, FLOATS_PER_VALUE * width + token] = float_of(scaled)


@compiled
def read_keys(pool, slot, n, width, key, factor):
    """Fill `key` and `factor` with the first `n` slots' rows, as BF16's bits, and their scales.

    key: [n or more, `width` or more, a multiple of STEP], with zeros past the width.
    """
    scale, byte, out = pool.view(np.float32), pool.reshape(-1), key.reshape(-1)
    page_bytes, padded = pool.shape[1], key.shape[1]
    for k in range(n):
        page, token = slot[k] // PAGE_TOKENS, slot[k] % PAGE_TOKENS
        start = page * page_bytes + token * width
        factor[k] = scale[page, FLOATS_PER_VALUE * width + token]
        for i in range(0, width, STEP):
            # past the last row of a page there are its scales
            _widen_lanes(byte, start + i, out, k * padded + i, width - i)


@compiled
def read_rows(pool, slot, out):
    """out[k] = the row at slot[k]. pool: bytes [pages + 1, B]; out: floats [K, W].

    False if a slot is in no page.
    """
    num_keys, width = out.shape
    key = np.empty((KEYS, -(-width // STEP) * STEP), np.uint16)
    factor = np.empty(KEYS, np.float32)
    for k in range(num_keys):
        if not 0 <= slot[k] < pool.shape[0] * PAGE_TOKENS:
            return False
    for first in range(0, num_keys, KEYS):
        n = min(KEYS, num_keys - first)
        read_keys(pool, slot[first:], n, width, key, factor)
        for k in range(n):
            for i in range(width):
                out[first + k, i] = widen(key[k, i]) * factor[k]
    return True


@compiled
def decode_attention(q, pool, row, page_table, read_len, chosen, scale, out):
    """`kernels.decode_attention` over FP8 pages. pool: bytes [pages + 1, B]."""
    num_heads, width = q.shape[1], q.shape[2]
    padded = -(-width // STEP) * STEP
    query = np.zeros((num_heads + HEADS - 1, padded), q.dtype)
    longest = chosen.shape[1]
    if longest == 0:
        for s in range(read_len.shape[0]):
            longest = max(longest, read_len[s])
    slot = np.empty(longest, np.int64)
    # keys are matched by fours: what is past the last one is computed, and not used
    order = np.arange(longest + 3)
    key = np.empty((longest + 3, padded), np.uint16)
    factor = np.empty(longest, np.float32)
    together = min(HEADS, -(-num_heads // ROWS) * ROWS)
    weight = np.empty((together, longest + 3), np.float32)
    sums = np.empty((together, out.shape[2]), np.float32)
    num_slots = pool.shape[0] * PAGE_TOKENS
    for s in range(row.shape[0]):
        t = row[s]
        n = own_slots(page_table[s], read_len[s], chosen[t], PAGE_TOKENS, num_slots, slot)
        if n < 0:
            return False
        read_keys(pool, slot, n, width, key, factor)
        copy_rows(q[t], query)
        for first in range(0, num_heads, HEADS):
            match_keys(query, first, key, order, n, weight)
            for h in range(together):
                mine = weight[h]
                for k in range(n):
                    mine[k] *= factor[k]
                softmax(mine, scale, n)
                for k in range(n):
                    mine[k] *= factor[k]
            weigh_rows(weight, key, order, n, sums)
            copy_rows(sums[: min(HEADS, num_heads - first)], out[t, first:])
    return True


@compiled
def index_scores(q, head_weight, pool, row, page_table, read_len, out):
    """`index_choice.index_scores` over FP8 pages. pool: bytes [pages + 1, B]."""
    num_heads, width = q.shape[1], q.shape[2]
    padded = -(-width // STEP) * STEP
    query = np.zeros((num_heads + HEADS - 1, padded), q.dtype)
    longest = out.shape[1]
    slot = np.empty(longest, np.int64)
    order = np.arange(longest + 3)
    key = np.empty((longest + 3, padded), np.uint16)
    factor = np.empty(longest, np.float32)
    together = min(HEADS, -(-num_heads // ROWS) * ROWS)
    match = np.empty((together, longest + 3), np.float32)
    everything = np.empty(0, np.int64)
    num_slots = pool.shape[0] * PAGE_TOKENS
    for s in range(row.shape[0]):
        n = own_slots(page_table[s], read_len[s], everything, PAGE_TOKENS, num_slots, slot)
        if n < 0:
            return False
        read_keys(pool, slot, n, width, key, factor)
        for k in range(longest):
            out[s, k] = ZERO if k < n else np.float32(-np.inf)
        copy_rows(q[row[s]], query)
        for first in range(0, num_heads, HEADS):
            match_keys(query, first, key, order, n, match)
            for h in range(min(HEADS, num_heads - first)):
                add_scores(match[h], n, head_weight[row[s], first + h], out[s])
        for k in range(n):
            out[s, k] *= factor[k]
    return True
