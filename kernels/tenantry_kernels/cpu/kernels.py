"""The compiled loops. All in one file, for numba's cache notices a change of a kernel's own file only.

Compute is float32. `bits` arrays hold float32, or BF16 as uint16, which `widen` reads; arrays are
contiguous. Sums may be reordered and fused (`_FAST_MATH`), but NaN and infinity stay what they are,
so that the sampler sees a sequence that went wrong. The last bits of a row's result depend on the
number of rows wherever `product`, which takes them by fours, has a part in it; the others take row
by row.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

_FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}

ZERO, ONE = np.float32(0), np.float32(1)
LOG2_E = np.float32(1.44269504)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # Cody and Waite's split
HEADS = 4
"""Heads whose dot products with one cached row are taken together."""
OUTPUTS = 16
"""Outputs of a product that are done for all rows before the next: their weights stay in L1."""


def _compiled(function):
    """Compile at the first call, or load what an earlier process compiled."""
    return _jit(function, _FAST_MATH)


def _in_order(function):
    """Compile like the others, but as written: only products and sums are fused."""
    return _jit(function, {"contract"})


def _jit(function, fast_math):
    options = {"nogil": True, "fastmath": fast_math, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        # neither this folder nor the user's cache can be written: compile in every process
        return njit(**options)(function)


@intrinsic
def widen(typingctx, value):
    """Return a float32, given it or the bits of a BF16."""
    if value == types.float32:
        return types.float32(value), lambda context, builder, signature, args: args[0]
    if value != types.uint16:
        raise TypingError(f"{value} is neither float32 nor BF16 as uint16")

    def code(context, builder, signature, args):
        word = builder.zext(args[0], ir.IntType(32))
        return builder.bitcast(builder.shl(word, ir.IntType(32)(16)), ir.FloatType())

    return types.float32(value), code


@intrinsic
def float_of(typingctx, word):
    """Return the float32 with these 32 bits."""

    def code(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), code


@_in_order
def exp(x):
    """Return e**x to two units in the last place. Below e**-87 it is that, above e**88 too; NaN stays."""
    # comparisons, for they send NaN to the bound: its conversion to an integer would be undefined
    bounded = x if x > np.float32(-87) else np.float32(-87)
    bounded = bounded if bounded < np.float32(88) else np.float32(88)
    power = np.floor(bounded * LOG2_E + np.float32(0.5))
    r = (bounded - power * LN2_HIGH) - power * LN2_LOW
    # Taylor's coefficients, |r| <= ln 2 / 2
    p = np.float32(1 / 5040)
    p = p * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    p = p * r + ONE
    p = p * r + ONE
    scale = float_of((np.int32(power) + np.int32(127)) << np.int32(23))
    return p * scale if x == x else x


@_compiled
def product(x, weight, out):
    """out[t, o] = x[t] . weight[o]. x: [T, I]; weight: bits [O, I]; out: [T, O]."""
    num_rows, num_in = x.shape
    num_out = weight.shape[0]
    for first in range(0, num_out, OUTPUTS):
        last = min(first + OUTPUTS, num_out)
        t = 0
        while t + 3 < num_rows:
            o = first
            while o + 1 < last:
                a0 = b0 = c0 = d0 = ZERO
                a1 = b1 = c1 = d1 = ZERO
                for i in range(num_in):
                    w0, w1 = widen(weight[o, i]), widen(weight[o + 1, i])
                    a, b, c, d = x[t, i], x[t + 1, i], x[t + 2, i], x[t + 3, i]
                    a0 += w0 * a
                    b0 += w0 * b
                    c0 += w0 * c
                    d0 += w0 * d
                    a1 += w1 * a
                    b1 += w1 * b
                    c1 += w1 * c
                    d1 += w1 * d
                out[t, o], out[t + 1, o], out[t + 2, o], out[t + 3, o] = a0, b0, c0, d0
                out[t, o + 1], out[t + 1, o + 1] = a1, b1
                out[t + 2, o + 1], out[t + 3, o + 1] = c1, d1
                o += 2
            if o < last:
                a0 = b0 = c0 = d0 = ZERO
                for i in range(num_in):
                    w0 = widen(weight[o, i])
                    a0 += w0 * x[t, i]
                    b0 += w0 * x[t + 1, i]
                    c0 += w0 * x[t + 2, i]
                    d0 += w0 * x[t + 3, i]
                out[t, o], out[t + 1, o], out[t + 2, o], out[t + 3, o] = a0, b0, c0, d0
            t += 4
        while t + 1 < num_rows:
            for o in range(first, last):
                a0 = b0 = ZERO
                for i in range(num_in):
                    w0 = widen(weight[o, i])
                    a0 += w0 * x[t, i]
                    b0 += w0 * x[t + 1, i]
                out[t, o], out[t + 1, o] = a0, b0
            t += 2
        if t < num_rows:
            for o in range(first, last):
                a0 = ZERO
                for i in range(num_in):
                    a0 += widen(weight[o, i]) * x[t, i]
                out[t, o] = a0


@_compiled
def swiglu(gate_up, out):
    """out = silu(gate) * up. gate_up: [T, gate | up]; out: [T, I]."""
    num_rows, width = out.shape
    for t in range(num_rows):
        for i in range(width):
            gate = gate_up[t, i]
            out[t, i] = gate / (ONE + exp(-gate)) * gate_up[t, width + i]


@_compiled
def routed_experts(x, expert, weight, gate_up, down, out):
    """out[t] = sum over k of weight[t, k] * expert[t, k](x[t]).

    x, out: [T, H]; expert, weight: [T, K]; gate_up: bits [E, 2 I, H]; down: bits [E, H, I].
    """
    num_rows, num_choices = expert.shape
    num_experts, width, hidden = down.shape[0], down.shape[2], down.shape[1]
    row = np.empty(num_rows, np.int64)
    factor = np.empty(num_rows, np.float32)
    mine = np.empty((num_rows, hidden), np.float32)
    raw = np.empty((num_rows, 2 * width), np.float32)
    gated = np.empty((num_rows, width), np.float32)
    for t in range(num_rows):
        for i in range(hidden):
            out[t, i] = ZERO
    for e in range(num_experts):
        n = 0
        for t in range(num_rows):
            for k in range(num_choices):
                if expert[t, k] == e:
                    row[n], factor[n] = t, weight[t, k]
                    for i in range(hidden):
                        mine[n, i] = x[t, i]
                    n += 1
        if n:
            product(mine[:n], gate_up[e], raw[:n])
            swiglu(raw[:n], gated[:n])
            product(gated[:n], down[e], mine[:n])
            for m in range(n):
                for i in range(hidden):
                    out[row[m], i] += factor[m] * mine[m, i]


@_compiled
def route(x, weight, bias, scaling, is_normalized, expert, factor):
    """Choose the experts with the highest sigmoid(x . weight) + bias; weigh them without bias.

    x: [T, H]; weight: [E, H]; bias: [E]; expert, factor: [T, K], the best first.
    """
    num_rows, num_choices = expert.shape
    num_experts = weight.shape[0]
    score = np.empty((num_rows, num_experts), np.float32)
    product(x, weight, score)
    is_taken = np.empty(num_experts, np.bool_)
    for t in range(num_rows):
        for e in range(num_experts):
            score[t, e] = ONE / (ONE + exp(-score[t, e]))
        for e in range(num_experts):
            is_taken[e] = False
        total = ZERO
        for k in range(num_choices):
            best = -1
            for e in range(num_experts):
                # the first is taken whatever it is: not-a-number exceeds nothing
                if not is_taken[e] and (
                    best < 0 or score[t, e] + bias[e] > score[t, best] + bias[best]
                ):
                    best = e
            is_taken[best] = True
            expert[t, k], factor[t, k] = best, score[t, best]
            total += score[t, best]
        divisor = total + np.float32(1e-20) if is_normalized else ONE
        for k in range(num_choices):
            factor[t, k] = factor[t, k] / divisor * scaling


@_compiled
def rms_norm(x, weight, eps, out):
    """out[t] = x[t] / sqrt(mean(x[t]**2) + eps) * weight. x, out: [T, H]; weight: bits [H]."""
    num_rows, width = x.shape
    for t in range(num_rows):
        total = ZERO
        for i in range(width):
            total += x[t, i] * x[t, i]
        factor = ONE / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            out[t, i] = x[t, i] * factor * widen(weight[i])


@_compiled
def copy_rows(source, out):
    """out[n] = source[n] for as many rows as `source` has. A slice assignment compiles slowly."""
    for n in range(source.shape[0]):
        for i in range(source.shape[1]):
            out[n, i] = source[n, i]


@_compiled
def own_slots(page_table, read_len, chosen, page_tokens, num_slots, slot):
    """Fill `slot` with what one sequence reads; return how many, or -1 if one is in no page.

    page_table: [P]; chosen: [K] positions, of which those outside the sequence are nothing, or [0]
    for all `read_len`.
    """
    if read_len > page_table.shape[0] * page_tokens:
        return -1
    n = 0
    for k in range(chosen.shape[0] if chosen.shape[0] else read_len):
        position = chosen[k] if chosen.shape[0] else k
        if 0 <= position < read_len:
            slot[n] = page_table[position // page_tokens] * page_tokens + position % page_tokens
            if not 0 <= slot[n] < num_slots:
                return -1
            n += 1
    return n


@_compiled
def match_keys(query, first, pool, slot, n, score):
    """score[h, k] = query[first + h] . row at slot[k], for `HEADS` heads and the first `n` slots."""
    for k in range(n):
        a = b = c = d = ZERO
        for i in range(query.shape[1]):
            value = widen(pool[slot[k], i])
            a += query[first, i] * value
            b += query[first + 1, i] * value
            c += query[first + 2, i] * value
            d += query[first + 3, i] * value
        score[0, k], score[1, k], score[2, k], score[3, k] = a, b, c, d


@_compiled
def softmax(score, scale, n):
    """Turn the first `n` scores of each head into weights of sum 1; the next three become 0."""
    for h in range(HEADS):
        highest = np.float32(-np.inf)
        for k in range(n):
            score[h, k] *= scale
            highest = max(highest, score[h, k])
        total = ZERO
        for k in range(n):
            score[h, k] = exp(score[h, k] - highest)
            total += score[h, k]
        for k in range(n):
            score[h, k] /= total
        score[h, n] = score[h, n + 1] = score[h, n + 2] = ZERO


@_compiled
def weigh_rows(weight, pool, slot, n, out):
    """out[h] = sum over k of weight[h, k] * row at slot[k], its first values. out: [HEADS, L]."""
    for h in range(HEADS):
        for i in range(out.shape[1]):
            out[h, i] = ZERO
    for k in range(0, n, 4):
        s0, s1, s2, s3 = slot[k], slot[k + 1], slot[k + 2], slot[k + 3]
        for h in range(HEADS):
            w0, w1, w2, w3 = weight[h, k], weight[h, k + 1], weight[h, k + 2], weight[h, k + 3]
            for i in range(out.shape[1]):
                near = w0 * widen(pool[s0, i]) + w1 * widen(pool[s1, i])
                out[h, i] += near + (w2 * widen(pool[s2, i]) + w3 * widen(pool[s3, i]))


@_compiled
def decode_attention(q, pool, row, page_table, read_len, chosen, page_tokens, scale, out):
    """Latent sums of one query per sequence over its own rows, 0 where it reads nothing.

    q: [T, N, C]; pool: bits [slots, C]; row, read_len: [S]; page_table: [S, P]; chosen: [T, K], or
    [T, 0] for everything; out: [T, N, L]. Only the rows in `row` are read and written. False if a
    sequence names a page that is not there.
    """
    num_heads, width = q.shape[1], q.shape[2]
    query = np.zeros((num_heads + HEADS - 1, width), np.float32)
    longest = chosen.shape[1]
    if longest == 0:
        for s in range(read_len.shape[0]):
            longest = max(longest, read_len[s])
    # three more, for rows are weighed by fours: the sequence's last one again, at weight 0
    slot = np.empty(longest + 3, np.int64)
    weight = np.empty((HEADS, longest + 3), np.float32)
    sums = np.empty((HEADS, out.shape[2]), np.float32)
    for s in range(row.shape[0]):
        t = row[s]
        n = own_slots(page_table[s], read_len[s], chosen[t], page_tokens, pool.shape[0], slot)
        if n < 0:
            return False
        if n:
            slot[n] = slot[n + 1] = slot[n + 2] = slot[n - 1]
        copy_rows(q[t], query)
        for first in range(0, num_heads, HEADS):
            match_keys(query, first, pool, slot, n, weight)
            softmax(weight, scale, n)
            weigh_rows(weight, pool, slot, n, sums)
            copy_rows(sums[: min(HEADS, num_heads - first)], out[t, first:])
    return True


@_compiled
def index_scores(q, head_weight, pool, row, page_table, read_len, page_tokens, out):
    """out[s, k] = sum over j of head_weight[t, j] * relu(q[t, j] . key k), -inf past the end.

    q: [T, J, D]; head_weight: [T, J]; pool: bits [slots, D]; row, read_len: [S]; page_table: [S, P];
    out: [S, K]. False if a sequence names a page that is not there.
    """
    num_heads, width = q.shape[1], q.shape[2]
    query = np.zeros((num_heads + HEADS - 1, width), np.float32)
    slot = np.empty(out.shape[1], np.int64)
    match = np.empty((HEADS, out.shape[1]), np.float32)
    everything = np.empty(0, np.int64)
    for s in range(row.shape[0]):
        n = own_slots(page_table[s], read_len[s], everything, page_tokens, pool.shape[0], slot)
        if n < 0:
            return False
        for k in range(out.shape[1]):
            out[s, k] = ZERO if k < n else np.float32(-np.inf)
        copy_rows(q[row[s]], query)
        for first in range(0, num_heads, HEADS):
            match_keys(query, first, pool, slot, n, match)
            for h in range(min(HEADS, num_heads - first)):
                factor = head_weight[row[s], first + h]
                for k in range(n):
                    # of not-a-number the comparison is false, and it stays
                    out[s, k] += factor * (ZERO if match[h, k] < ZERO else match[h, k])
    return True
